"""`gantree what-if`: trials from files, for people and for programs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Complaints = Callable[[Any, str], list[str]]
Gantree = Callable[..., Any]
JobFile = Callable[..., Path]

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def nodes_of(answer: Any) -> list[str]:
    return list(dict.fromkeys(member["node"] for member in answer["members"]))


def test_without_options_it_says_what_is(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, complaints: Complaints
) -> None:
    outcome = gantree("what-if", cluster_file, job_file("j", 2, 4), "--json")
    assert outcome.code == 0
    assert complaints(outcome.json(), "what-if") == []
    (trial,) = outcome.json()["trials"]
    placed = gantree("place", cluster_file, job_file("j", 2, 4), "--json").json()
    assert trial["placements"] == placed["placements"]
    assert (trial["without"], trial["ended"], trial["members"]) == ([], [], None)


def test_each_trial_starts_from_the_cluster_as_it_is(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, complaints: Complaints
) -> None:
    jobs = (job_file("a", 2, 4), job_file("b", 1, 4))
    options = ("--without", "n[2-3]", "--with-members", 1, "--with-members", 3, "--json")
    outcome = gantree("what-if", cluster_file, *jobs, *options)
    assert outcome.code == 3
    assert complaints(outcome.json(), "what-if") == []
    trials = outcome.json()["trials"]
    told = [
        (
            trial["without"],
            trial["members"],
            [nodes_of(each) if each["placed"] else None for each in trial["placements"]],
        )
        for trial in trials
    ]
    assert told == [
        ([], None, [["n2", "n3"], ["n1"]]),
        (["n2", "n3"], None, [None, ["n1"]]),
        (["n2", "n3"], 1, [["n1"], None]),
        (["n2", "n3"], 3, [None, None]),
    ]


def test_people_read_a_line_for_each_job_and_who_is_in_the_way(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    outcome = gantree(
        "what-if", cluster_file, job_file("j", 4, 2), "--without", "n0", "--with-members", 8
    )
    assert outcome.code == 3
    lines = outcome.out.splitlines()
    assert lines[0] == "as it is:"
    assert lines[1].startswith("  j: 8 GPUs on 2 nodes of leaf s0/l1, 1 GiB all-reduced in ")
    assert lines[2:4] == ["without n0:", "  old has resources on n0"]
    assert lines[5:7] == ["without n0, with 8 members:", "  old has resources on n0"]
    assert lines[7].startswith("  j: not placed. Waiting: needs 16 GPUs; 12 are free.")


def test_nodes_out_of_use_are_told_as_a_hostlist(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    outcome = gantree("what-if", cluster_file, job_file("j", 1, 1), "--without", "n[1-3]")
    assert "without n[1-3]:" in outcome.out.splitlines()


def test_sizes_that_have_no_effect_or_that_a_job_would_never_get_are_told(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, complaints: Complaints
) -> None:
    elastic = job_file("e", 3, 1, elastic={"min": 2, "max": 4})
    both = job_file("both", 1, 1)
    role = {"members": 1, "each": {"gpus": 1}, "run": ["true"]}
    both.write_text(
        json.dumps({"name": "both", "gang": [{"role": "a", **role}, {"role": "b", **role}]})
    )
    words = ("what-if", cluster_file, elastic, both, "--with-members", 1, "--with-members", 2)
    notes = [
        "both has several roles, so --with-members does not change it",
        "e would never get 1 member: its file says elastic, 2 to 4",
    ]
    answer = gantree(*words, "--json").json()
    assert complaints(answer, "what-if") == []
    assert [sorted(trial["notes"]) for trial in answer["trials"]] == [[], notes, notes[:1]]
    assert f"  {notes[1]}" in gantree(*words).out.splitlines()
    refused = gantree("what-if", cluster_file, both, "--with-members", 2)
    assert (refused.code, refused.out) == (2, "")
    assert "--with-members: every job has several roles" in refused.err


def test_jobs_that_have_ended_leave_room(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    outcome = gantree("what-if", cluster_file, job_file("j", 4, 4), "--ended", "old")
    assert outcome.code == 0, "only what was asked for counts"
    assert outcome.out.splitlines()[0:1] + outcome.out.splitlines()[2:3] == [
        "as it is:",
        "old ended:",
    ]
    assert "not placed" in outcome.out.splitlines()[1]


def test_a_gang_that_tells_its_traffic_is_told_its_step(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    job = job_file("j", 2, 4, traffic={"data": "1GB", "compute": "2s"})
    outcome = gantree("what-if", cluster_file, job)
    assert ", a step in 2" in outcome.out.splitlines()[1]


def test_an_elastic_gang_is_tried_smaller_but_not_where_a_size_is_asked(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, complaints: Complaints
) -> None:
    job = job_file("j", 4, 4, elastic={"min": 1, "max": 4})
    outcome = gantree("what-if", cluster_file, job, "--with-members", 4, "--json")
    assert outcome.code == 3
    assert complaints(outcome.json(), "what-if") == []
    as_it_is, with_4 = (trial["placements"][0] for trial in outcome.json()["trials"])
    assert as_it_is["sizes"]["worker"] == len(as_it_is["members"]) < 4
    assert not with_4["placed"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--without", "n9"),
            "--without: found `n9`; allowed: a node of the cluster.",
        ),
        (("--without", "n[0"), "--without: found 'n[0'; allowed: a node name or a hostlist"),
        (("--ended", "olds"), "a job with allocations in the cluster file. Did you mean `old`?"),
        (("--with-members", 0), "Invalid value for '--with-members'"),
        (("--policy", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_is_not_there_is_bad_input(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, options: tuple[object, ...], told: str
) -> None:
    outcome = gantree("what-if", cluster_file, job_file("j", 1, 1), *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def test_a_size_at_which_ways_are_not_whole_is_bad_input(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    job = job_file("j", 4, 1, parallelism={"data": 2, "tensor": 2})
    outcome = gantree("what-if", cluster_file, job, "--with-members", 3)
    assert outcome.code == 2
    assert "data 2 of 4 members would become 1.5 ways" in outcome.err


def test_placements_are_described_as_those_of_place() -> None:
    what_if, place = (
        json.loads((SCHEMAS / f"{name}-output.schema.json").read_text())
        for name in ("what-if", "place")
    )
    trial = what_if["properties"]["trials"]["items"]["properties"]
    assert trial["placements"] == place["properties"]["placements"]
    assert what_if["$defs"] == place["$defs"]
