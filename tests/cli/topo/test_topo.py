"""`gantree topo`: clusters drawn and told, topologies read."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
MATRIX = """
\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPIX\t0-15\t0
GPU1\tNV4\t X \tSYS\t16-31\t1
mlx5_0\tPIX\tSYS\t X
"""
CONDITIONS = """
name: worn
tiers: [leaf, node]
machines:
  m4: {gpus: 4, gpu: H100-80GB, cpus: 32, memory_GiB: 256, nics: 2}
nodes:
  - {names: "n[0-1]", machine: m4, at: {leaf: l0}, partitions: {power: feed-a}}
  - {names: n2, machine: m4, at: {leaf: l1}}
domains:
  - {tier: leaf, name: l0, health: 0.5, load: 0.25}
  - {tier: node, name: n0, health: 0}
nics:
  - {node: n1, nic: mlx5_0, load: 0.75}
tori:
  - {name: pod, dims: [4, 2], host: [2, 2], nodes: "n[0-1]", wrap: [true, false]}
"""


def test_a_cluster_file_is_drawn_with_what_is_taken(gantree: Gantree, cluster_file: Path) -> None:
    outcome = gantree("topo", cluster_file)
    assert outcome.code == 0
    assert re.search(r"n0 .*aa\.\.", outcome.out)
    assert re.search(r"n1 .*\.\.\.\.", outcome.out)
    assert "old" in outcome.out


@pytest.mark.parametrize("force", [None, "1"])
def test_no_text_is_cut_off_the_picture(
    gantree: Gantree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: str | None
) -> None:
    """Into a pipe lines are whole; on a terminal (FORCE_COLOR makes Rich see one) they wrap."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if force:
        monkeypatch.setenv("FORCE_COLOR", force)
        monkeypatch.setenv("TERM", "dumb")
    name = "a-rather-long-name-of-a-node-in-a-rack"
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: c\ntiers: [leaf, node]\nmachines: {m: {gpus: 16}}\nnodes:\n"
        f'  - {{names: "{name}-[0-9]", machine: m, at: {{leaf: l0}}}}\n'
    )
    shown = gantree("topo", file).out
    words = re.sub(r"\x1b\[[0-9;]*m", "", shown).translate({ord(c): None for c in "│├└─"}).split()
    assert "".join(words).endswith(f"{name}-0..{name}-9(10alike)m................each")
    assert force or f"{name}-0 .. {name}-9 (10 alike)  m  ................ each\n" in shown


def test_programs_get_the_holder_of_each_gpu(
    gantree: Gantree, complaints: Complaints, cluster_file: Path
) -> None:
    answer = gantree("topo", cluster_file, "--json").json()
    assert complaints(answer, "topo") == []
    assert answer["tiers"] == ["spine", "leaf", "node"]
    assert [(node["node"], node["at"]["leaf"], node["gpus"]) for node in answer["nodes"][:2]] == [
        ("n0", "l0", ["site:old", "site:old", None, None]),
        ("n1", "l0", [None] * 4),
    ]


def test_programs_get_conditions_partitions_and_places_in_a_torus(
    gantree: Gantree, complaints: Complaints, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONDITIONS)
    answer = gantree("topo", file, "--json").json()
    assert complaints(answer, "topo") == []
    assert answer["domains"] == [
        {"tier": "leaf", "name": "l0", "health": 0.5, "load": 0.25},
        {"tier": "leaf", "name": "l1", "health": 1.0, "load": 0.0},
    ]
    assert answer["nics"] == [{"node": "n1", "nic": "mlx5_0", "health": 1.0, "load": 0.75}]
    assert [(n["health"], n["usable"], n["partitions"]) for n in answer["nodes"]] == [
        (0.0, False, {"power": "feed-a"}),
        (1.0, True, {"power": "feed-a"}),
        (1.0, True, {}),
    ]
    assert answer["nodes"][1]["torus"] == {
        "name": "pod",
        "coordinates": [[2, 0], [2, 1], [3, 0], [3, 1]],
    }
    assert answer["nodes"][2]["torus"] is None
    assert answer["tori"] == [
        {
            "torus": "pod",
            "dims": [4, 2],
            "host": [2, 2],
            "wrap": [True, False],
            "nodes": ["n0", "n1"],
        }
    ]


def test_show_may_be_said(gantree: Gantree, cluster_file: Path) -> None:
    assert gantree("topo", "show", cluster_file).out == gantree("topo", cluster_file).out


def test_a_cluster_file_with_errors_names_them_all(gantree: Gantree, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: a\ntiers: [leaf]\nnodes: [{names: n0, machine: dgx-h1oo, at: {leaf: l0}}]\n"
    )
    outcome = gantree("topo", file)
    assert outcome.code == 2
    assert f"gantree: {file}:2: tiers" in outcome.err
    assert "dgx-h100" in outcome.err


def test_detect_and_a_file_exclude_each_other(gantree: Gantree, cluster_file: Path) -> None:
    assert gantree("topo", cluster_file, "--detect").code == 2


def test_an_imported_matrix_is_told_as_documented(
    gantree: Gantree, complaints: Complaints, tmp_path: Path
) -> None:
    file = tmp_path / "matrix.txt"
    file.write_text(MATRIX)
    answer = gantree("topo", "import", "nvidia-smi", file, "--json").json()
    assert complaints(answer, "topo-import") == []
    assert answer == {
        "gpus": 2,
        "links": [["X", "NV4"], ["NV4", "X"]],
        "nvlink_islands": [[0, 1]],
        "numa": [0, 1],
        "nearest_nics": [["mlx5_0"], ["mlx5_0"]],
        "nics": ["mlx5_0"],
        "warnings": [],
    }


def test_an_imported_machine_serves_in_a_cluster_file(gantree: Gantree, tmp_path: Path) -> None:
    (tmp_path / "matrix.txt").write_text(MATRIX)
    machine = tmp_path / "pair.yaml"
    written = gantree("topo", "import", "nvidia-smi", tmp_path / "matrix.txt", "-o", machine)
    assert written.code == 0
    assert str(machine) in written.out
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        f"name: c\ntiers: [node]\n{machine.read_text()}nodes: [{{names: n0, machine: pair}}]\n"
    )
    assert gantree("topo", cluster, "--json").json()["nodes"][0]["gpus"] == [None, None]


def test_people_read_the_matrix(gantree: Gantree, tmp_path: Path) -> None:
    (tmp_path / "matrix.txt").write_text(MATRIX)
    outcome = gantree("topo", "import", "nvidia-smi", tmp_path / "matrix.txt")
    assert outcome.out == (
        "2 GPUs\n"
        "      GPU0  GPU1  NUMA  NEAREST NICS\n"
        "GPU0  X     NV4   0     mlx5_0\n"
        "GPU1  NV4   X     1     mlx5_0\n"
        "NVLink islands: 0,1\n"
    )


@pytest.mark.parametrize("text", ["", "hello", "GPU0 GPU1\n"])
def test_what_is_no_matrix_is_bad_input(gantree: Gantree, tmp_path: Path, text: str) -> None:
    (tmp_path / "matrix.txt").write_text(text)
    outcome = gantree("topo", "import", "nvidia-smi", tmp_path / "matrix.txt", "--json")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("gantree: ")


def test_a_machine_that_cannot_be_written_is_said(gantree: Gantree, tmp_path: Path) -> None:
    (tmp_path / "matrix.txt").write_text(MATRIX)
    target = tmp_path / "no" / "such" / "m.yaml"
    outcome = gantree("topo", "import", "nvidia-smi", tmp_path / "matrix.txt", "-o", target)
    assert outcome.code == 2
    assert f"{target}: cannot be written" in outcome.err


def test_programs_get_instances_shares_and_devices_with_their_holders(
    gantree: Gantree, complaints: Complaints, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: c\ntiers: [leaf, node]\n"
        "machines: {a2: {gpus: 2, gpu: A100-80GB, devices: {fpga: 2}}}\n"
        "nodes:\n"
        "  - {names: n0, machine: a2, at: {leaf: l0}, share: {modes: [mps], tenants: 3}, mig: {by: node, gpus: [0],"
        " instances: [{gpu: 0, profile: 3g.40gb, start: 4}, {gpu: 0, profile: 2g.20gb, start: 0}]}}\n"
        "allocations:\n"
        "  - {job: a, node: n0, mig: [{gpu: 0, profile: 3g.40gb, start: 4}], devices: {fpga: 1}}\n"
        "  - {job: b, node: n0, shares: [{gpu: 1, compute: 0.5, memory_GiB: 20, isolation: mps}]}\n"
    )
    answer = gantree("topo", file, "--json").json()
    assert complaints(answer, "topo") == []
    (node,) = answer["nodes"]
    assert (node["gpus"], node["free_gpus"]) == ([None, None], [])
    assert node["mig"] == {
        "by": "node",
        "mode": [0],
        "instances": [
            {"gpu": 0, "profile": "2g.20gb", "start": 0, "holder": None},
            {"gpu": 0, "profile": "3g.40gb", "start": 4, "holder": "site:a"},
        ],
    }
    held = {"gpu": 1, "compute": 0.5, "memory_GiB": 20, "isolation": "mps", "alone": False}
    assert node["shares"] == {
        "modes": ["mps"],
        "tenants": 3,
        "held": [held | {"holder": "site:b"}],
    }
    assert node["devices"] == [{"device": "fpga", "count": 2, "free": 1}]
