"""`gantree fit`: on which GPUs a job may run, for people and for programs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Complaints = Callable[[Any, str], list[str]]
Gantree = Callable[..., Any]

CLUSTER = """
name: mixed
tiers: [node]
machines:
  t4: {gpus: 8, gpu: T4-16GB}
nodes:
  - {names: "h[0-1]", machine: dgx-h100}
  - {names: "a[0-1]", machine: dgx-a100}
  - {names: "s[0-3]", machine: dgx-h100, spot: {per_day: 0.5}}
  - {names: t0, machine: t4}
"""
PRICES = """
gpus:
  H100-80GB: {on_demand: 4, spot: 1, source: contract 7, date: 2026-10-01}
  A100-80GB: {on_demand: 2, source: contract 7, date: 2026-10-01}
  T4-16GB: {on_demand: 0.5, source: contract 7, date: 2026-10-01}
"""
MODEL = {
    "parameters": "13B",
    "layers": 40,
    "hidden": 5120,
    "sequence": 4096,
    "batch": 256,
    "sharded": "optimizer",
}
JOB = {
    "name": "llama",
    "gang": [{"role": "worker", "members": 2, "each": {"gpus": 8}, "run": ["true"]}],
    "model": MODEL,
    "parallelism": {"tensor": 2, "data": 8},
    "expected": "10h",
    "choose": "cost",
    "checkpoint": {"every": "15m"},
    "spot": True,
}


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., list[Path | str]]:
    """Files of the cluster, the job with changes, and the prices, as words of a command line."""
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "p.yaml").write_text(PRICES)

    def write(**changes: object) -> list[Path | str]:
        (tmp_path / "j.yaml").write_text(json.dumps(JOB | changes))
        return [tmp_path / "c.yaml", tmp_path / "j.yaml", "--prices", tmp_path / "p.yaml"]

    return write


def test_ways_are_a_table_that_reads_from_the_best_on(
    gantree: Gantree, asked: Callable[..., list[Path | str]]
) -> None:
    outcome = gantree("fit", *asked())
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0] == "llama: 16 GPUs, chosen by cost"
    assert lines[1] == (
        "each needs about 60.7 GiB (parameters 12.1, gradients 24.2, optimizer 9.08, activations 13.3, reserve 2), "
        "at least 27.3"
    )
    rows = [line.split() for line in lines[3:7]]
    assert [row[:3] for row in rows] == [
        ["1", "H100-80GB", "spot"],
        ["2", "H100-80GB", "on-demand"],
        ["3", "A100-80GB", "on-demand"],
        ["-", "T4-16GB", "on-demand"],
    ]
    assert rows[0][3:] == [
        "fits",
        "80",
        "GiB",
        "1",
        "10h",
        "$160.00",
        "0.948",
        "GPU",
        "h",
        "$160.95",
    ]
    assert lines[7].startswith("excluded: T4-16GB has 16 GiB, a rank needs at least 27 GiB (")


def test_the_answer_for_programs_is_as_its_schema_says(
    gantree: Gantree, asked: Callable[..., list[Path | str]], complaints: Complaints
) -> None:
    answer = gantree("fit", *asked(), "--json").json()
    assert complaints(answer, "fit") == []
    (job,) = answer["jobs"]
    assert [(way["gpu"], way["market"], way["open"]) for way in job["ways"]] == [
        ("H100-80GB", "spot", True),
        ("H100-80GB", "on_demand", True),
        ("A100-80GB", "on_demand", True),
        ("T4-16GB", "on_demand", False),
    ]
    assert job["memory"]["usual"]["total"] > job["memory"]["least"]["total"]


def test_a_job_of_which_nothing_is_known_has_its_questions_marked(
    gantree: Gantree, asked: Callable[..., list[Path | str]], complaints: Complaints
) -> None:
    plain = {"model": None, "parallelism": None, "expected": None, "choose": "order", "spot": False}
    words = asked()
    job = {key: value for key, value in JOB.items() if key not in plain}
    Path(words[1]).write_text(json.dumps(job))
    outcome = gantree("fit", *words)
    assert outcome.code == 0
    assert outcome.out.splitlines()[2].split() == [
        "1",
        "any",
        "on-demand",
        "?",
        "?",
        "?",
        "?",
        "?",
        "?",
    ]
    assert "note: run time is not known" in outcome.out
    assert complaints(gantree("fit", *words, "--json").json(), "fit") == []


def test_a_budget_that_nothing_keeps_to_is_exit_status_3(
    gantree: Gantree, asked: Callable[..., list[Path | str]], complaints: Complaints
) -> None:
    words = asked(budget_USD=100)
    outcome = gantree("fit", *words)
    assert outcome.code == 3
    assert "H100-80GB spot: about $160.95, the budget is $100.00" in outcome.out
    answer = gantree("fit", *words, "--json").json()
    assert complaints(answer, "fit") == []
    assert answer["jobs"][0]["why"]["gate"] == "LIMIT"


def plain(words: list[Path | str], **more: object) -> list[Path | str]:
    """The job of these words without anything but a gang on GPU models."""
    role = {"role": "w", "members": 1, "each": {"gpus": 8}, "run": ["true"], **more}
    Path(words[1]).write_text(json.dumps({"name": "j", "gang": [role]}))
    return words


def test_a_model_that_no_node_has_is_a_closed_way_with_the_likely_one(
    gantree: Gantree, asked: Callable[..., list[Path | str]], complaints: Complaints
) -> None:
    outcome = gantree("fit", *plain(asked(), gpu=["H100", "A100-80GB"]))
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert [line.split()[:2] for line in lines[2:4]] == [["1", "A100-80GB"], ["-", "H100"]]
    hint = "models here: H100-80GB, A100-80GB, T4-16GB. Did you mean `H100-80GB`?"
    assert f"excluded: no node has H100; {hint}" in lines
    answer = gantree("fit", *plain(asked(), gpu=["H100", "A100-80GB"]), "--json").json()
    assert complaints(answer, "fit") == []
    assert [(way["gpu"], way["open"]) for way in answer["jobs"][0]["ways"]] == [
        ("A100-80GB", True),
        ("H100", False),
    ]


def test_where_no_node_has_any_of_the_models_no_way_is_open(
    gantree: Gantree, asked: Callable[..., list[Path | str]], complaints: Complaints
) -> None:
    outcome = gantree("fit", *plain(asked(), gpu="H100"))
    assert outcome.code == 3
    assert [line.split()[0] for line in outcome.out.splitlines()[2:3]] == ["-"]
    assert outcome.out.splitlines()[-1].startswith("Never fits: no node has H100; models here: ")
    answer = gantree("fit", *plain(asked(), gpu="H100"), "--json").json()
    assert complaints(answer, "fit") == []
    (job,) = answer["jobs"]
    assert (job["why"]["gate"], [way["open"] for way in job["ways"]]) == ("SHAPE", [False])


def test_the_jobs_of_an_array_are_one_table(
    gantree: Gantree, asked: Callable[..., list[Path | str]]
) -> None:
    words = asked(array="0-9")
    lines = gantree("fit", *words).out.splitlines()
    assert lines[0] == "llama (array of 10), each: 16 GPUs, chosen by cost"
    assert sum(line.startswith("   GPU ") for line in lines) == 1
    assert len(gantree("fit", *words, "--json").json()["jobs"]) == 10
    both = json.dumps(JOB | {"array": "0-1"}) + "\n---\n" + json.dumps(JOB | {"name": "other"})
    Path(words[1]).write_text(both)
    told = [line for line in gantree("fit", *words).out.splitlines() if "chosen by" in line]
    assert told == [
        "llama (array of 2), each: 16 GPUs, chosen by cost",
        "other: 16 GPUs, chosen by cost",
    ]
