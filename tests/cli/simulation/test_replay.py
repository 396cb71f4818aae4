"""`gantree replay`: figures out of a journal, beside a simulation of it."""

import csv
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import FILE, SqliteJournal, back_up
from gantree.sim.cluster import Overheads
from gantree.sim.workload import job_of
from support.recorded_simulations import RecordedSimulation

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
SITE = """
name: one-leaf
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 256}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
POLICY = "preset: fifo\npriorities: {batch: 200, urgent: 500}\nqueues: [{name: a}, {name: b}]\n"
ROWS = (
    TraceJob("long", 0, 100, 1, 4, queue="b", priority="urgent"),
    TraceJob("wide", 10, 100, 2, 4, queue="a"),
    TraceJob("short", 20, 30, 1, 4, queue="a", expected_s=30),
)


@pytest.fixture
def backfill(tmp_path: Path) -> Path:
    """Another policy for the same queues."""
    path = tmp_path / "backfill.yaml"
    path.write_text(POLICY.replace("fifo", "backfill"))
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory of a daemon that let `short` wait behind `wide`."""
    _record(tmp_path / "state")
    return tmp_path / "state"


def _record(folder: Path, journal: SqlJournal | None = None) -> None:
    site, policy = read_cluster(SITE, "site.yaml"), read_policy(POLICY, "policy.yaml")
    jobs = [(row, job_of(row)) for row in ROWS]
    past = RecordedSimulation(folder, site, jobs, policy, Overheads(), (), POLICY, journal)
    past.run_on()
    past.journal.close()


def test_a_journal_is_compared_with_its_simulations(
    gantree: Gantree, complaints: Complaints, state: Path, backfill: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    outcome = gantree("replay", state, "--policy", backfill, "--out", out, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    document = outcome.json()
    assert complaints(document, "replay") == []
    assert document == json.loads((out / "replay.json").read_text())
    assert document["recorded"] == document["recorded_policy"]
    assert document["recorded"]["makespan_s"] == 230
    assert document["policy"]["makespan_s"] == 200
    assert document["error"]["start_s"]["max"] == document["error"]["makespan"] == 0
    assert document["starts"]["most_earlier"] == [{"job": "tshort", "name": "tshort", "by_s": -180}]
    rows = list(csv.DictReader((out / "jobs.csv").read_text().splitlines()))
    assert [(row["job"], row["work_s"], row["recorded_start_s"], row["policy_start_s"]) for row in rows] == [
        ("tlong", "100", "0", "0"), ("twide", "100", "100", "100"), ("tshort", "30", "200", "20")
    ]  # fmt: skip
    assert gantree("compare", out / "recorded-policy", out / "policy").code == 0
    for name in ("recorded-policy", "policy"):
        assert (out / name / "summary.json").exists() and (out / name / "report.html").exists()


def test_people_read_what_changes_and_how_sure_it_is(
    gantree: Gantree, state: Path, backfill: Path
) -> None:
    outcome = gantree("replay", state, "--policy", backfill)
    assert outcome.code == 0
    for words in (
        "wait mean 1m30s 1m30s 30.0s",
        "Starts: 1 job earlier, 0 later, 2 at the same time (within 1 s).",
        "Earlier most: tshort by 3m.",
        "Work of jobs: 3 from its recorded run.",
        "starts differ from the record by 0.0s at the median and 0.0s at p95, the makespan by +0.0%",
    ):
        assert words in " ".join(outcome.out.split())


def test_a_copy_of_a_journal_will_do_and_a_journal_in_use(
    gantree: Gantree, state: Path, backfill: Path, tmp_path: Path
) -> None:
    back_up(state, tmp_path / "copy")
    in_use = SqliteJournal(state)
    try:
        for source in (tmp_path / "copy", state):
            outcome = gantree("replay", source, "--policy", backfill, "--json")
            assert (outcome.code, outcome.json()["policy"]["makespan_s"]) == (0, 200)
    finally:
        in_use.close()


def test_a_journal_in_a_database_is_named_by_its_url(
    gantree: Gantree, database_url: str, tmp_path: Path, backfill: Path
) -> None:
    _record(tmp_path, PostgresJournal(database_url))
    outcome = gantree("replay", database_url, "--policy", backfill, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json()["policy"]["makespan_s"] == 200


def test_a_snapshot_of_kubernetes_has_no_record(
    gantree: Gantree, complaints: Complaints, tmp_path: Path
) -> None:
    (tmp_path / "cluster-empty.yaml").write_text(SITE)
    (tmp_path / "trace.csv").write_text(
        "job_id,submit_s,duration_s,members,gpus_per_member\na,100,50,2,4\nb,110,50,1,4\n"
    )
    document = gantree("replay", tmp_path, "--policy", "fifo", "--json").json()
    assert complaints(document, "replay") == []
    assert (document["recorded_policy"], document["error"]) == (None, None)
    assert (document["policy"]["makespan_s"], document["starts"]["only_under_policy"]) == (100, 2)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere",), "nowhere: no such file or directory; allowed: a state directory"),
        ((".",), ".: there is no journal in this directory; allowed: a state directory"),
        (("text",), "text: this file is no journal; allowed: a state directory"),
        (("state", "--since", "2026-01-01"), "no job was submitted in that time"),
        (("state", "--since", "yesterday"), "--since: found 'yesterday'; allowed: a date such as"),
        (("state", "--since", "1d", "--until", "2d"), "--since 1d is not before --until 2d"),
        (("empty",), "the journal is empty: no daemon has decided yet"),
        (("snapshot", "--since", "1d"), "a snapshot is of one moment; leave out --since and --until"),
    ],
)  # fmt: skip
def test_bad_input_names_what_is_allowed(
    gantree: Gantree,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(state.parent)
    write(Path("policy.yaml"), POLICY)
    write(Path("text"), "no journal\n")
    SqliteJournal(Path("empty")).close()
    Path("snapshot").mkdir()
    write(Path("snapshot/trace.csv"), "job_id\n")
    outcome = gantree("replay", *words, "--policy", "policy.yaml")
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def test_a_policy_must_have_the_queues_and_classes_of_the_jobs(
    gantree: Gantree, state: Path, tmp_path: Path
) -> None:
    policy = write(tmp_path / "p.yaml", "preset: fifo\nqueues: [{name: a}, {name: c}]\n")
    outcome = gantree("replay", state, "--policy", policy)
    assert outcome.code == 2
    assert "1 recorded job: there is no queue `b`; queues are a, c" in outcome.err
    assert "1 recorded job: priority: found `urgent`; allowed: a number or a class (" in outcome.err


def test_a_journal_of_an_older_version_says_what_brings_it_up_to_date(
    gantree: Gantree, state: Path
) -> None:
    with sqlite3.connect(state / FILE) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    outcome = gantree("replay", state, "--policy", "fair")
    assert outcome.code != 0
    assert "was written by an older gantree (schema 3" in outcome.err
    assert "the next `gantree up` brings it up to date" in outcome.err
