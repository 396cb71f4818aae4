"""`gantree cost`: what a job's traffic costs where it would run, for programs and for people."""

import json
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
JobFile = Callable[..., Path]

CLUSTER = """
name: two-leaves
tiers: [spine, leaf, node]
links: {leaf: {bandwidth_GBps: 50, latency_us: 6, uplink_GBps: 400}}
nodes:
  - {names: "n[0-1]", machine: dgx-h100, at: {spine: s0, leaf: l0}}
  - {names: "n[2-3]", machine: dgx-h100, at: {spine: s0, leaf: l1}}
"""
MODEL = {"parameters": "13B", "layers": 40, "hidden": 5120, "sequence": 4096, "batch": 256}
CALIBRATION = """
measured: {backend: nccl, host: n0, date: 2026-11-21}
links:
  NV18: {bandwidth_GBps: 200, latency_us: 3}
  node: {bandwidth_GBps: 10, latency_us: 9}
"""


@pytest.fixture
def h100s(tmp_path: Path) -> Path:
    """Two leaves of two DGX H100."""
    path = tmp_path / "h100s.yaml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture
def training(job_file: JobFile) -> Path:
    """A job of 32 GPUs that tells its model."""
    ways = {"tensor": 8, "data": 2, "pipeline": 2}
    return job_file("train", 4, 8, parallelism=ways, model=MODEL)


def test_a_job_is_placed_and_priced_by_group(
    gantree: Gantree, complaints: Complaints, h100s: Path, training: Path
) -> None:
    outcome = gantree("cost", h100s, training, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    answer = outcome.json()
    assert complaints(answer, "cost") == []
    assert (answer["gpus"], answer["nodes"]) == (32, 4)
    assert answer["domain"] == {"tier": "spine", "name": "s0"}
    assert answer["crossings"] == {"spine": 0, "leaf": 2, "node": 4}
    assert answer["collective"]["name"] == "all_reduce"
    assert answer["collective"]["bytes"] == 1 << 30
    step = answer["step"]
    assert {flow["axis"]: (flow["within"], flow["groups"]) for flow in step["flows"]} == {
        "tensor": ("node", 4),
        "data": ("leaf", 16),
        "pipeline": ("spine", 16),
    }
    exposed = sum(flow["exposed_s"] for flow in step["flows"])
    assert step["step_s"] == pytest.approx(step["compute_s"] + step["bubble_s"] + exposed)


def test_people_read_a_table_by_group(gantree: Gantree, h100s: Path, training: Path) -> None:
    lines = gantree("cost", h100s, training).out.splitlines()
    assert lines[0] == "train: 32 GPUs on 4 nodes, within spine s0"
    assert lines[1].endswith("spine 0, leaf 2, node 4")
    assert lines[2].startswith("all_reduce of 1 GiB over all: ")
    assert lines[3].startswith("on demand: $220.16 an hour, $")
    assert lines[4].startswith("spot: $210.27 an hour, $")
    assert lines[5].startswith("step ")
    assert lines[6] == "assumed: mfu 0.4"
    assert lines[7].split()[:3] == ["AXIS", "GROUPS", "WITHIN"]
    assert [line.split()[0] for line in lines[8:]] == ["tensor", "data", "pipeline"]


def test_prices_of_the_site_take_the_place_of_list_prices(
    gantree: Gantree, h100s: Path, training: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("gpus: {H100-80GB: {on_demand: 2, source: contract 7, date: 2026-10-01}}\n")
    answer = gantree("cost", h100s, training, "--prices", file, "--json").json()
    prices, step_s = answer["prices"], answer["step"]["step_s"]
    assert (
        prices["spot"] is None
    )  # what the site says of a GPU replaces all that the catalogue says
    assert prices["on_demand"]["USD_per_hour"] == 64
    assert prices["on_demand"]["USD_per_step"] == pytest.approx(64 * step_s / 3600)
    assert prices["on_demand"]["quotes"] == ["H100-80GB: contract 7, 2026-10-01"]


def test_a_job_that_tells_no_traffic_has_a_collective_and_no_step(
    gantree: Gantree, complaints: Complaints, h100s: Path, job_file: JobFile
) -> None:
    plain = job_file("plain", 1, 8)
    answer = gantree("cost", h100s, plain, "--json").json()
    assert complaints(answer, "cost") == []
    assert answer["step"] is None
    assert answer["collective"]["algorithm"] == "in-switch"
    told = gantree("cost", h100s, plain).out
    assert "no step time: the job file gives neither `model` nor `traffic`" in told
    single = gantree("cost", h100s, job_file("one", 1, 1))
    assert "over all: nothing to send" in single.out


def test_the_print_of_place_is_priced_as_it_stands(
    gantree: Gantree, h100s: Path, training: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = gantree("place", h100s, training, "--json").out
    file = tmp_path / "placements.json"
    file.write_text(printed)
    own = gantree("cost", h100s, training, "--json").json()
    assert gantree("cost", h100s, training, "--placement", file, "--json").json() == own
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(printed.encode())))
    assert gantree("cost", h100s, training, "--placement", "-", "--json").json() == own
    moved = json.loads(printed)
    members = moved["placements"][0]["members"]
    members[1]["node"], members[2]["node"] = members[2]["node"], members[1]["node"]
    file.write_text(json.dumps(moved))
    other = gantree("cost", h100s, training, "--placement", file, "--json").json()
    assert other["crossings"]["leaf"] == 4
    assert other["collective"]["seconds"] > own["collective"]["seconds"]


def test_a_collective_may_be_named(gantree: Gantree, h100s: Path, training: Path) -> None:
    words = ("--collective", "all_to_all", "--bytes", "64MiB", "--json")
    asked = gantree("cost", h100s, training, *words).json()["collective"]
    assert (asked["name"], asked["bytes"], asked["algorithm"]) == (
        "all_to_all",
        1 << 26,
        "pairwise",
    )
    ring = gantree("cost", h100s, training, "--algorithm", "ring", "--json").json()["collective"]
    assert ring["algorithm"] == "ring"


def test_measured_links_take_the_place_of_the_constants(
    gantree: Gantree, complaints: Complaints, h100s: Path, training: Path, tmp_path: Path
) -> None:
    links = tmp_path / "measured.yaml"
    links.write_text(CALIBRATION)
    plain = gantree("cost", h100s, training, "--json").json()
    answer = gantree("cost", h100s, training, "--links", links, "--json").json()
    assert complaints(answer, "cost") == []
    assert answer["measured"] == {
        "backend": "nccl", "host": "n0", "date": "2026-11-21", "links": ["NV18", "node"],
        "of_no_link_here": [],
    }  # fmt: skip
    assert answer["collective"]["seconds"] > plain["collective"]["seconds"]
    assert "measured on n0, 2026-11-21, nccl: NV18, node" in gantree(
        "cost", h100s, training, "--links", links
    ).out  # fmt: skip


def test_measured_links_that_price_nothing_here_are_told(
    gantree: Gantree, h100s: Path, training: Path, tmp_path: Path
) -> None:
    links = tmp_path / "measured.yaml"
    links.write_text(CALIBRATION.replace("NV18", "NV12").replace("node", "nod"))
    answer = gantree("cost", h100s, training, "--links", links, "--json").json()
    assert answer["measured"]["of_no_link_here"] == ["NV12", "nod"]
    lines = gantree("cost", h100s, training, "--links", links).out
    assert "measured, but not in this cluster: NV12, nod" in lines


def test_a_parallelism_that_does_not_fit_the_gang_names_the_file(
    gantree: Gantree, h100s: Path, job_file: JobFile
) -> None:
    odd = job_file("odd", 4, 8, parallelism={"tensor": 8, "data": 2}, model=MODEL)
    outcome = gantree("cost", h100s, odd)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{odd}: job odd: parallelism of tensor 8" in outcome.err.replace("\n", " ")


def test_a_machine_of_unknown_links_has_a_price(
    gantree: Gantree, h100s: Path, training: Path
) -> None:
    untold = "machines: {untold: {gpus: 8, gpu: H100-80GB}}\nnodes"
    h100s.write_text(CLUSTER.replace("dgx-h100", "untold").replace("nodes", untold))
    assert "bound by unknown link" in gantree("cost", h100s, training).out


def test_a_job_that_cannot_be_placed_is_refused_as_place_does(
    gantree: Gantree, complaints: Complaints, h100s: Path, job_file: JobFile
) -> None:
    huge = job_file("huge", 5, 8)
    outcome = gantree("cost", h100s, huge, "--json")
    assert outcome.code == 3
    assert complaints(outcome.json(), "cost") == []
    assert gantree("cost", h100s, huge).out.startswith("huge: not placed. ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--bytes", "4KX"], "--bytes 4KX: allowed: a size above 0"),
        (["--bytes", "0"], "allowed: a size above 0"),
        (["--bytes", "2e18"], "at most 1e18 bytes"),
        (["--collective", "gossip"], "no collective 'gossip'; known: all_reduce"),
        (["--algorithm", "star"], "no algorithm 'star' for all_reduce; known: ring"),
        (["--placement", "none.json"], "no such file"),
        (["--links", "none.yaml"], "no such file"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told(
    gantree: Gantree, h100s: Path, training: Path, words: list[str], told: str
) -> None:
    outcome = gantree("cost", h100s, training, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def member(node: str, gpus: list[Any]) -> dict[str, Any]:
    return {"role": "worker", "rank": 0, "node": node, "gpus": gpus}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("{", "found the end of the text where a field name in double quotes should be"),
        ("[]", "job train is not in it; jobs in it: none"),
        ({"placements": [{"job": "other", "placed": True, "members": []}]}, "jobs in it: other"),
        ({"placements": [{"job": "train", "placed": False}]}, "is not in it"),
        ({"job": "train"}, "members: found nothing"),
        ({"job": "train", "members": [member("n9", [0])]}, "found `n9`; allowed: a node of two-leaves"),
        ({"job": "train", "members": [member("n0", [8])]}, "numbers below 8"),
        ({"job": "train", "members": [member("n0", ["x"])]}, "numbers below 8"),
        ({"job": "train", "members": [member("n0", [1, 1])]}, "GPU 1 of n0 again"),
        ({"job": "train", "members": [member("n0", [1])]}, "has 1 GPU there, but its file requests 32"),
        ({"job": "train", "members": 7}, "a list"),
    ],
)  # fmt: skip
def test_what_is_no_placement_on_this_cluster_is_told(
    gantree: Gantree, h100s: Path, training: Path, tmp_path: Path, document: Any, told: str
) -> None:
    file = tmp_path / "placements.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    outcome = gantree("cost", h100s, training, "--placement", file)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def test_a_parallelism_that_does_not_fit_the_gang_is_told(
    gantree: Gantree, h100s: Path, job_file: JobFile
) -> None:
    odd = job_file("odd", 3, 8, parallelism={"tensor": 8, "data": 2}, model=MODEL)
    outcome = gantree("cost", h100s, odd)
    assert outcome.code == 2
    assert "is 16 ranks, the gang has 24 GPUs" in outcome.err


def test_a_file_of_several_jobs_is_not_one_to_price(
    gantree: Gantree, h100s: Path, training: Path
) -> None:
    training.write_text(
        training.read_text() + "\n---\n" + training.read_text().replace("train", "b")
    )
    outcome = gantree("cost", h100s, training)
    assert outcome.code == 2
    assert "2 jobs (train, b); allowed: one job or one array" in outcome.err


def test_of_an_array_the_first_job_is_priced_and_named(
    gantree: Gantree, complaints: Complaints, h100s: Path, job_file: JobFile
) -> None:
    many = job_file("many", 1, 8, array="3-5")
    outcome = gantree("cost", h100s, many)
    assert outcome.code == 0
    assert outcome.out.startswith("many-3: 8 GPUs")
    assert "the cost is that of many-3, the first of an array of 3 equal jobs" in outcome.err
    answer = gantree("cost", h100s, many, "--json").json()
    assert complaints(answer, "cost") == []
    assert answer["warnings"] == [
        "the cost is that of many-3, the first of an array of 3 equal jobs"
    ]


def test_links_that_nobody_told_are_warned_of_and_what_was_taken_is_said(
    gantree: Gantree, complaints: Complaints, h100s: Path, training: Path
) -> None:
    untold = "machines: {untold: {gpus: 8, gpu: H100-80GB}}\nnodes"
    h100s.write_text(CLUSTER.replace("dgx-h100", "untold").replace("nodes", untold))
    outcome = gantree("cost", h100s, training)
    assert "machine untold does not tell the links between its GPUs" in outcome.err
    (assumed,) = [line for line in outcome.out.splitlines() if line.startswith("assumed: ")]
    assert "links between GPUs of untold as SYS" in assumed
    assert "a NIC of 48 GB/s for each GPU of untold" in assumed
    answer = gantree("cost", h100s, training, "--json").json()
    assert complaints(answer, "cost") == []
    assert len(answer["warnings"]) == 1


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ("domains: [{tier: leaf, name: s0/l0, health: 0}]", "the links of leaf s0/l0 are broken (health 0)"),
        ("domains: [{tier: leaf, name: s0/l0, load: 1}]", "the links of leaf s0/l0 are full (health 1, load 1)"),
        ("domains: [{tier: node, name: n2, load: 1}]", "the links of node n2 are full (health 1, load 1)"),
        ("nics: [{node: n1, nic: mlx5_0, health: 0}]", "NIC mlx5_0 of n1 is broken (health 0)"),
    ],
)  # fmt: skip
def test_a_link_that_is_broken_or_full_is_named_with_the_floor(
    gantree: Gantree, h100s: Path, training: Path, facts: str, told: str
) -> None:
    h100s.write_text(f"{CLUSTER}{facts}\n")
    outcome = gantree("cost", h100s, training)
    assert outcome.code == 0
    assert f"{told}; prices count 1 % of the capacity" in outcome.err
    assert "assumed: 1 % of a link that is broken or full" in outcome.out


def test_in_a_domain_of_nvlink_untold_links_hold_only_inside_one_node(
    gantree: Gantree, tmp_path: Path, job_file: JobFile
) -> None:
    rack = tmp_path / "rack.yaml"
    rack.write_text(
        "name: r\ntiers: [nvlink, node]\nmachines: {tray: {gpus: 4, gpu: GB200-186GB}}\n"
        'nodes: [{names: "n[0-3]", machine: tray, at: {nvlink: d0}}]\n'
    )
    outcome = gantree("cost", rack, job_file("wide", 4, 4))
    assert "bound by NV18" in outcome.out
    assert "of tray inside one node as SYS" in outcome.out
    assert "and across nodes of a domain as NV18" in outcome.out
    assert "traffic among them inside one node is priced at the slowest" in outcome.err


def test_a_broken_link_that_no_traffic_leaves_by_is_no_concern(
    gantree: Gantree, h100s: Path, job_file: JobFile
) -> None:
    h100s.write_text(f"{CLUSTER}domains: [{{tier: leaf, name: s0/l0, health: 0}}]\n")
    outcome = gantree("cost", h100s, job_file("pair", 2, 8))
    assert (outcome.code, outcome.err) == (0, "")


def test_gpus_without_a_price_are_named(
    gantree: Gantree, complaints: Complaints, h100s: Path, job_file: JobFile
) -> None:
    plain = job_file("plain", 1, 8)
    odd = "machines: {odd: {gpus: 8, gpu: X9-80GB}, bare: {gpus: 8}}\nnodes"
    h100s.write_text(CLUSTER.replace("dgx-h100", "odd").replace("nodes", odd))
    assert (
        "on demand: no price for X9-80GB; give one with --prices FILE"
        in gantree("cost", h100s, plain).out
    )
    answer = gantree("cost", h100s, plain, "--json").json()
    assert complaints(answer, "cost") == []
    assert answer["prices"]["unpriced"] == {"on_demand": ["X9-80GB"], "spot": ["X9-80GB"]}
    h100s.write_text(CLUSTER.replace("dgx-h100", "bare").replace("nodes", odd))
    assert "no price for GPUs of no named model" in gantree("cost", h100s, plain).out


def test_a_price_for_a_gpu_that_nobody_knows_is_warned_of(
    gantree: Gantree, h100s: Path, training: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("gpus: {H100-80G: {on_demand: 2, source: contract 7, date: 2026-10-01}}\n")
    outcome = gantree("cost", h100s, training, "--prices", file)
    assert (
        "no GPU model H100-80G in the catalogue, so its price may not be used. Did you mean `H100-80GB`?"
        in outcome.err.replace("\n", " ")
    )


def test_a_model_without_experts_is_not_spread_over_expert_ways(
    gantree: Gantree, h100s: Path, job_file: JobFile
) -> None:
    odd = job_file("odd", 4, 8, parallelism={"data": 32, "expert": 4}, model=MODEL)
    outcome = gantree("cost", h100s, odd)
    assert outcome.code == 2
    assert "parallelism.expert: found `4` for a model without experts" in outcome.err.replace(
        "\n", " "
    )


def test_the_example_in_the_docs_is_what_is_printed(gantree: Gantree, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cost.md").read_text()
    cluster, asked = tmp_path / "cluster.yaml", tmp_path / "job.yaml"
    _, cluster_text, job_text, *_ = page.split("```yaml\n")
    cluster.write_text(cluster_text.partition("```")[0])
    asked.write_text(job_text.partition("```")[0])
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert gantree("cost", cluster, asked).out == shown
