"""`gantree ranks`: which rank runs on which GPU, for people, for programs and as files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Complaints = Callable[[Any, str], list[str]]
Gantree = Callable[..., Any]

CLUSTER = """
name: two-leaves
tiers: [spine, leaf, node]
links:
  leaf: {bandwidth_GBps: 25, latency_us: 6, uplink_GBps: 400}
nodes:
  - {names: "n[0-1]", machine: dgx-h100, at: {spine: s0, leaf: l0}}
  - {names: "n[2-3]", machine: dgx-h100, at: {spine: s0, leaf: l1}}
"""
ROLE = {
    "role": "worker",
    "members": 4,
    "processes": 8,
    "each": {"gpus": 8, "nics": 8},
    "run": ["true"],
}
STAGES_FIRST = {
    "parallelism": {"pipeline": 2, "data": 2, "tensor": 8},
    "rank_order": "as-written",
    "traffic": {"tensor": "64GB", "data": "8GB", "pipeline": "1GB"},
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(CLUSTER)
    return path


def job(folder: Path, **more: object) -> Path:
    path = folder / "job.yaml"
    path.write_text(json.dumps({"name": "llm", "gang": [ROLE], **more}))
    return path


def test_ranks_are_told_to_people(gantree: Gantree, site: Path, tmp_path: Path) -> None:
    outcome = gantree("ranks", site, job(tmp_path, **STAGES_FIRST))
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "llm: 32 ranks, single ranks moved"
    assert lines[1].startswith("  step ") and lines[1].endswith(" s in topology order")
    assert sum(line.startswith("  worker ") for line in lines) == 4
    tensor = next(line for line in lines if line.startswith("tensor"))
    assert "0 (was 16)" in tensor


def test_programs_get_every_rank_once(
    gantree: Gantree, site: Path, tmp_path: Path, complaints: Complaints
) -> None:
    answer = gantree("ranks", site, job(tmp_path, **STAGES_FIRST), "--json").json()
    assert complaints(answer, "ranks") == []
    assert [placed["rank"] for placed in answer["ranks"]] == list(range(32))
    assert len({(placed["node"], placed["gpus"][0]) for placed in answer["ranks"]}) == 32
    by_member = {member["node"]: member["ranks"] for member in answer["members"]}
    assert by_member == {
        node: [placed["rank"] for placed in sorted(answer["ranks"], key=lambda s: s["process"]) if placed["node"] ==
        node] for node in by_member
    }  # fmt: skip
    assert answer["members"][0]["nccl_graph"] is False
    assert "one file for all its groups" in answer["members"][0]["no_nccl_graph_because"]


def test_files_for_launchers_and_nccl_are_written(
    gantree: Gantree, site: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert gantree("ranks", site, job(tmp_path), "--out", out).code == 0
    names = sorted(path.name for path in out.iterdir())
    each = [f"worker-{n}.{kind}" for n in range(4) for kind in ("env", "graph.xml")]
    assert names == sorted(["dgx-h100.topo.xml", "ranks.json", *each])
    environment = dict(
        line.split("=", 1) for line in (out / "worker-2.env").read_text().splitlines()
    )
    assert environment["GANTREE_RANKS"] == "16,17,18,19,20,21,22,23"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert Path(environment["NCCL_GRAPH_FILE"]) == out / "worker-2.graph.xml"
    assert json.loads((out / "ranks.json").read_text())["moved"] is False


def test_files_of_members_that_a_smaller_job_no_longer_has_are_removed_and_others_stay(
    gantree: Gantree, site: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert gantree("ranks", site, job(tmp_path), "--out", out).code == 0
    (out / "worker-9.env").write_text("mine\n")
    outcome = gantree("ranks", site, job(tmp_path, gang=[{**ROLE, "members": 2}]), "--out", out)
    assert outcome.code == 0
    assert "worker-2.env" in outcome.err and "worker-9" not in outcome.err
    each = [f"worker-{n}.{kind}" for n in range(2) for kind in ("env", "graph.xml")]
    kept = ["dgx-h100.topo.xml", "ranks.json", "worker-9.env"]
    assert sorted(path.name for path in out.iterdir()) == sorted([*kept, *each])


def test_a_graph_file_that_is_not_right_any_more_is_removed(
    gantree: Gantree, site: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert gantree("ranks", site, job(tmp_path), "--out", out).code == 0
    assert gantree("ranks", site, job(tmp_path, **STAGES_FIRST), "--out", out).code == 0
    assert [path.name for path in out.glob("*.graph.xml")] == []
    assert len([*out.glob("*.env")]) == 4


@pytest.mark.parametrize(
    "standing", ['{"job": "other", "members": []}', '{"members": 3}', "[]", "no JSON"]
)
def test_a_folder_of_another_job_is_left_as_it_is(
    gantree: Gantree, site: Path, tmp_path: Path, standing: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "ranks.json").write_text(standing)
    outcome = gantree("ranks", site, job(tmp_path), "--out", out)
    assert outcome.code == 2
    assert "ranks.json" in outcome.err and "job llm" in outcome.err
    assert [path.read_text() for path in out.iterdir()] == [standing]


def test_a_placement_that_was_printed_is_taken(
    gantree: Gantree, site: Path, tmp_path: Path
) -> None:
    asked = job(tmp_path, **STAGES_FIRST)
    placed = tmp_path / "placed.json"
    placed.write_text(gantree("place", site, asked, "--json").out)
    told = gantree("ranks", site, asked, "--placement", placed, "--json").json()
    assert told == gantree("ranks", site, asked, "--json").json()


def test_a_placement_of_other_members_is_refused(
    gantree: Gantree, site: Path, tmp_path: Path
) -> None:
    asked = job(tmp_path)
    placed = tmp_path / "placed.json"
    document = json.loads(gantree("place", site, asked, "--json").out)
    document["placements"][0]["members"].pop()
    placed.write_text(json.dumps(document))
    outcome = gantree("ranks", site, asked, "--placement", placed)
    assert outcome.code == 2
    assert "differ from its file" in outcome.err


def test_a_job_without_room_is_refused_with_the_reason(
    gantree: Gantree, site: Path, tmp_path: Path, complaints: Complaints
) -> None:
    asked = job(tmp_path, gang=[{**ROLE, "members": 5}])
    assert gantree("ranks", site, asked).code == 3
    answer = gantree("ranks", site, asked, "--json").json()
    assert complaints({**answer, "why": {}}, "ranks") == []
    assert answer["placed"] is False and answer["why"]["sentence"]


def test_several_jobs_at_once_are_refused(gantree: Gantree, site: Path, tmp_path: Path) -> None:
    outcome = gantree("ranks", site, job(tmp_path, array="0-1"))
    assert outcome.code == 2
    assert "2 jobs; allowed: one" in outcome.err


@pytest.mark.parametrize("command", ["ranks", "cost"])
def test_what_was_printed_of_a_gang_that_starts_smaller_is_taken(
    command: str, gantree: Gantree, site: Path, tmp_path: Path
) -> None:
    asked = job(tmp_path, gang=[{**ROLE, "members": 5}], elastic={"min": 2, "max": 5})
    placed = tmp_path / "placed.json"
    placed.write_text(gantree("place", site, asked, "--json").out)
    outcome = gantree(command, site, asked, "--placement", placed)
    assert outcome.code == 0
    assert outcome.out == gantree(command, site, asked).out


def test_a_placement_smaller_than_an_elastic_gang_may_be_is_refused(
    gantree: Gantree, site: Path, tmp_path: Path
) -> None:
    placed = tmp_path / "placed.json"
    placed.write_text(gantree("place", site, job(tmp_path), "--json").out)
    asked = job(tmp_path, gang=[{**ROLE, "members": 8}], elastic={"min": 5, "max": 8})
    outcome = gantree("ranks", site, asked, "--placement", placed)
    assert outcome.code == 2
    assert "differ from its file" in outcome.err
