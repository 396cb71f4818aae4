"""`gantree when`, `queues`, `what-if JOB` and `defragment` against a real daemon."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.explain.what_if_job import _cost
from gantree.cli.input.files import MAX_POLICY_BYTES
from gantree.cli.jobs.job_columns import COLUMNS
from gantree.cli.options import PRESETS
from gantree.formats.policy.reader import MAX_POLICY_FILE_BYTES, PRESET_NAMES
from support.daemon import Daemon

Complaints = Callable[[Any, str], list[str]]
Gantree = Callable[..., Any]
JobFile = Callable[..., Path]
CLUSTER = """
name: pair
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
POLICY = """
preset: gantree
queues:
  - {name: research, weight: 3}
  - {name: product, limit: {gpus: 6}}
evictions: {grace: 1s}
"""
SLEEP = [{"role": "w", "members": 1, "each": {"gpus": 4}, "run": ["sleep", "300"]}]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "state", CLUSTER, POLICY) as running:
        yield running


@pytest.fixture(autouse=True)
def _busy(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, gantree: Gantree, job_file: JobFile
) -> None:
    """One node is taken for ten minutes, the other is free; `wide` waits for both."""
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
    if daemon.client.jobs():
        return
    gantree("submit", job_file("a", 1, 4, gang=SLEEP, queue="research", time_limit="10m"))
    daemon.wait("a", "running")
    gantree("submit", job_file("wide", 2, 4, queue="research", time_limit="1h"))
    gantree("submit", job_file("over", 2, 4, queue="product"))


def test_when_tells_a_promise_from_an_estimate_and_both_from_nothing(
    gantree: Gantree, complaints: Complaints
) -> None:
    promised = gantree("when", "wide")
    assert promised.code == 0
    assert "wide starts in 10m" in promised.out or "wide starts in 9m" in promised.out
    assert "at the latest: promised; after the end of a." in promised.out
    assert "a: ends in" in promised.out and "by its time limit" in promised.out
    answer = gantree("when", "wide", "--json").json()
    assert complaints(answer, "when") == []
    assert answer["start"]["promised"] and answer["hangs_on"][0]["job"] == "a"
    nobody = gantree("when", "over")
    assert "The start of over cannot be estimated. " in nobody.out and "at most" in nobody.out
    runs = gantree("when", "a")
    assert "a is not pending: it is running. It started" in runs.out
    assert gantree("when", "nobody").code == 1


def test_why_adds_the_start_and_jobs_lists_it(gantree: Gantree, complaints: Complaints) -> None:
    told = gantree("why", "wide")
    assert "at the latest: promised; after the end of a" in told.out
    assert complaints(gantree("why", "wide", "--json").json(), "why") == []
    assert complaints(gantree("why", "over", "--json").json(), "why") == []
    listed = gantree("jobs")
    assert "starts in 9m" in listed.out or "starts in 10m" in listed.out
    assert complaints(gantree("jobs", "--json").json(), "jobs") == []


def test_queues_are_a_table_of_the_tree(gantree: Gantree, complaints: Complaints) -> None:
    table = gantree("queues").out.splitlines()
    assert table[0].split()[:5] == ["QUEUE", "WEIGHT", "SHARE", "GUARANTEE", "USED"]
    assert table[1].split()[:3] == ["the", "cluster", "50.0"]
    assert [line.split()[0] for line in table[2:]] == ["research", "product"]
    assert "6 gpus" in table[3]
    answer = gantree("queues", "--json").json()
    assert complaints(answer, "queues") == []
    cluster, research, _ = answer["queues"]
    assert (cluster["kind"], cluster["running"], cluster["waiting"]) == ("cluster", 1, 2)
    assert (research["used"]["gpus"], research["weight"]) == (4, 3)


@pytest.mark.parametrize(
    ("run_s", "words"), [(0.3, "runs less than a second, "), (61, "runs 1m1s, ")]
)
def test_a_run_that_is_learned_to_be_short_is_not_told_as_none(run_s: float, words: str) -> None:
    nothing = dict.fromkeys(("step_s", "step_ratio", "comm_ratio", "cost_USD"))
    told = {**nothing, "run_s": run_s, "gpu_hours": 0.1}
    assert _cost({**told, "cut": False}).startswith(words)
    cut = words.replace(",", ", but its time limit may end it first,")
    assert _cost({**told, "cut": True}).startswith(cut)


@pytest.mark.parametrize(
    ("members_now", "gpus_now", "gpus"),
    [(None, None, "8"), (4, 8, "8"), (2, 4, "4 of 8"), (6, 12, "12 of 8")],
)
def test_a_gang_that_runs_with_other_members_than_written_is_told_with_both(
    members_now: int | None, gpus_now: int | None, gpus: str
) -> None:
    row = {"members": 4, "gpus": 8, "members_now": members_now, "gpus_now": gpus_now}
    assert COLUMNS["gpus"].cell(row, 0.0) == gpus
    del row["gpus_now"]
    assert COLUMNS["gpus"].cell(row, 0.0) == "8"


def test_what_if_answers_for_a_job_of_the_daemon(gantree: Gantree, complaints: Complaints) -> None:
    told = gantree("what-if", "wide", "--members", 1, "--queue", "product", "--relax", "none")
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0] == "as it is:" and "promised" in lines[1]
    assert "relaxed to anywhere:" in lines
    small = lines.index("with 1 member:")
    assert lines[small + 1] == "  starts at once: 4 GPUs on 1 node of node l0/n1"
    assert "4 GPU-hours; 27.52 USD at list prices" in lines[small + 2]
    elsewhere = lines.index("in queue product:")
    assert "its start cannot be estimated. Waiting: queue product may use 6" in lines[elsewhere + 1]
    both = gantree(
        "what-if", "wide", "--members", 1, "--time-limit", "30m", "--priority", 7, "--together", "--json"
    )  # fmt: skip
    assert complaints(both.json(), "what-if-job") == []
    _, only = both.json()["alternatives"]
    assert only["change"] == {"members": 1, "priority": 7, "time_limit": 1800.0}
    assert only["now"] and only["run_s"] == 1800


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("wide", "--priority", "serving", "--gpu", "A100"), 3, ""),
        (("nobody",), 1, "no job nobody"),
        (("wide", "--time-limit", "soon"), 2, "--time-limit: found 'soon'"),
        (("wide", "--members", 1, "--members", 2, "--together"), 2, "each option once"),
        (("wide", "--without", "n0"), 2, "a job of the daemon"),
        (("cluster.yaml", "job.yaml", "--members", 1), 2, "--with-members"),
        (("wide", "--queue", "prodct"), 2, "Did you mean"),
    ],
)
def test_what_if_ends_as_the_other_commands(
    gantree: Gantree, words: tuple[object, ...], code: int, says: str
) -> None:
    outcome = gantree("what-if", *words)
    assert (outcome.code, says in outcome.err) == (code, True)


def test_no_moves_are_an_answer_too(gantree: Gantree, complaints: Complaints) -> None:
    outcome = gantree("defragment", "wide", "--json")
    assert (outcome.code, outcome.json()["plan"]) == (1, None)
    assert complaints(outcome.json(), "defragment") == []
    assert gantree("defragment", "wide").out.startswith("No moves let wide start now")
    assert gantree("defragment", "wide", "--apply").code == 1


def test_the_presets_in_the_help_are_those_that_there_are() -> None:
    assert PRESETS == PRESET_NAMES


def test_a_policy_that_is_too_large_is_named(gantree: Gantree, tmp_path: Path) -> None:
    assert MAX_POLICY_BYTES == MAX_POLICY_FILE_BYTES
    large = tmp_path / "large.yaml"
    large.write_text("preset: fair\n#" + "x" * MAX_POLICY_BYTES)
    outcome = gantree("policy", "check", large)
    assert (outcome.code, outcome.err) == (2, f"gantree: {large}: larger than 1 MiB\n")
