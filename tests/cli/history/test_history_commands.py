"""`gantree history` on a real daemon, which is killed in between."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gantree.api.client.client import Client
from gantree.cli.history.over_time import sparkline
from gantree.model.errors import Conflict, NotFound
from support.command_line import CommandLine
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: n0, machine: m2}]
"""
JOB = """
name: {name}
user: {user}
queue: {queue}
gang: [{{role: w, members: 1, each: {{gpus: 1}}, run: [sh, -c, "exit {code}"]}}]
restarts: 0
"""
SUBMITTED = (("a", "ann", "x/y", 0), ("a", "bob", "x", 3), ("b", "ann", "z", 0))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Three jobs have ended, one of them before the daemon was killed."""
    with Daemon(tmp_path_factory.mktemp("history") / "state", CLUSTER) as daemon:
        for name, user, queue, code in SUBMITTED:
            text = JOB.format(name=name, user=user, queue=queue, code=code)
            job = daemon.client.submit(text)["jobs"][0]["job"]
            daemon.wait(job)
            if user == "bob":
                daemon.kill()
                daemon.start()
        yield daemon


Ask = Callable[..., str]


@pytest.fixture
def ask(daemon: Daemon, gantree: CommandLine) -> Ask:
    def asked(*words: str) -> str:
        outcome = gantree("history", "jobs", *words, "--state", str(daemon.state_dir))
        assert outcome.code == 0, outcome.err
        return outcome.out

    return asked


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), ["b", "a-2", "a"]),
        (("--user", "ann"), ["b", "a"]),
        (("--queue", "x"), ["a-2", "a"]),
        (("--queue", "x/y"), ["a"]),
        (("--name", "a"), ["a-2", "a"]),
        (("--name", "*-?"), ["a-2"]),
        (("--outcome", "failed", "--outcome", "cancelled"), ["a-2"]),
        (("--since", "1h"), ["b", "a-2", "a"]),
        (("--until", "1h"), []),
        (("--limit", "1"), ["b"]),
        (("--limit", "0"), ["b", "a-2", "a"]),
    ],
)
def test_jobs_are_found(ask: Ask, words: tuple[str, ...], found: list[str]) -> None:
    printed = json.loads(ask(*words, "--json"))
    assert [row["job"] for row in printed["jobs"]] == found
    assert printed["more"] is (words == ("--limit", "1"))


def test_the_table_the_csv_and_the_json_say_the_same(
    ask: Ask, complaints: Callable[[Any, str], list[str]]
) -> None:
    printed = json.loads(ask("--json"))
    assert complaints(printed, "history-jobs") == []
    head, *lines = ask("--columns", "job, outcome,exit-code,nodes,gpu-model").splitlines()
    assert head.split() == ["JOB", "OUTCOME", "EXIT", "CODE", "NODES", "GPU", "MODEL"]
    assert lines[1].split() == ["a-2", "failed", "3", "n0", "H100-80GB"]
    rows = list(csv.DictReader(io.StringIO(ask("--columns", "job,user,gpus", "--csv"))))
    assert rows[0] == {"job": "b", "user": "ann", "gpus": "1"}
    assert "No ended jobs." in ask("--name", "nobody")


def test_a_column_that_is_none_is_named(daemon: Daemon, gantree: CommandLine) -> None:
    outcome = gantree(
        "history", "jobs", "--columns", "job,colour", "--state", str(daemon.state_dir)
    )
    assert outcome.code == 2
    assert "--columns: found 'colour'; allowed: job, name" in outcome.err


def test_one_job_is_told_by_id_or_name(daemon: Daemon) -> None:
    client: Client = daemon.client
    assert client.ended_job("a-2")["exit_code"] == 3
    assert client.ended_job("a")["job"] == "a", "an id comes before a name"
    held = client.submit(f"hold: true\n{JOB.format(name='c', user='ann', queue='x', code=0)}")
    with pytest.raises(Conflict, match="has not ended"):
        client.ended_job(held["jobs"][0]["job"])
    with pytest.raises(NotFound, match="there is no job nobody"):
        client.ended_job("nobody")


@pytest.fixture
def told(daemon: Daemon, gantree: CommandLine) -> Ask:
    def asked(*words: str) -> str:
        outcome = gantree("history", *words, "--state", str(daemon.state_dir))
        assert outcome.code == 0, outcome.err
        return outcome.out

    return asked


@pytest.mark.parametrize(
    ("command", "schema"),
    [("use", "use"), ("queues", "use"), ("preemptions", "use"), ("waits", "waits")],
)
def test_what_is_printed_for_programs_is_as_documented(
    told: Ask, complaints: Callable[[Any, str], list[str]], command: str, schema: str
) -> None:
    printed = json.loads(told(command, "--since", "2h", "--by", "hour", "--json"))
    assert complaints(printed, f"history-{schema}") == []
    assert printed["step_s"] == 3600
    assert 2 <= len(printed["starts"]) <= 4


def test_use_and_shares_agree_with_the_jobs(told: Ask, daemon: Daemon) -> None:
    jobs = json.loads(told("jobs", "--json"))["jobs"]
    by_queue: dict[str, float] = {}
    for job in jobs:
        by_queue[job["queue"]] = by_queue.get(job["queue"], 0.0) + job["held_gpu_s"]
    use = daemon.client.usage_history("queue", step="hour")
    found = {row["name"]: sum(row["allocated_gpu_s"]) for row in use["rows"]}
    assert found == pytest.approx({**by_queue, **dict.fromkeys(found.keys() - by_queue.keys(), 0.0)})  # fmt: skip
    (whole,) = daemon.client.usage_history(step="hour")["rows"]
    assert sum(whole["started"]) >= len(jobs)
    assert sum(whole["succeeded"]) + sum(whole["failed"]) + sum(whole["cancelled"]) == len(jobs)
    assert sum(whole["capacity_gpu_s"]) > sum(whole["allocated_gpu_s"]) > 0
    (waited,) = daemon.client.wait_history(step="hour")["rows"]
    assert waited["all"]["jobs"] == sum(whole["started"])
    assert json.loads(told("waits", "--queue", "x", "--json"))["rows"][0]["name"].startswith("x")


def test_tables_and_csv_show_every_step(told: Ask) -> None:
    head, *lines = told("use", "--since", "2h", "--by", "hour").splitlines()
    assert head.split()[:4] == ["TIME", "GPUS", "ALLOCATED", "USED"]
    assert "█" in lines[-1]
    rows = list(csv.DictReader(io.StringIO(told("queues", "--since", "2h", "--csv"))))
    assert {row["queue"] for row in rows} >= {"x", "x/y", "z"}
    assert "JOBS" in told("waits")
    assert told("preemptions", "--since", "2h", "--by", "hour").splitlines()[1].split()[2] == "0"
    assert "Nothing is on record" in told("queues", "--queue", "nowhere")


def test_a_step_that_is_no_longer_kept_is_refused(daemon: Daemon, gantree: CommandLine) -> None:
    outcome = gantree(
        "history", "use", "--since", "5d", "--by", "minute", "--state", str(daemon.state_dir)
    )
    assert outcome.code == 2
    assert "allowed: hour, 6h, day, week: each minute is kept for 12 hours" in outcome.err


@pytest.mark.parametrize(
    ("figures", "line"),
    [([], ""), ([0.0, 0.0], "  "), ([0.0, 1.0, 8.0], " ▂█"), ([1.0] * 120, "█" * 60)],
)
def test_a_sparkline_is_as_high_as_its_highest(figures: list[float], line: str) -> None:
    assert sparkline(figures) == line


def test_the_end_of_a_job_is_told_as_seff_does(daemon: Daemon, gantree: CommandLine) -> None:
    at = ("--state", str(daemon.state_dir))
    first, *lines = gantree("seff", "a-2", *at).out.splitlines()
    assert first == "a-2: failed (exit code 3)"
    said = {line[:18].strip(): line[18:] for line in lines}
    assert said["GPUs"] == "1 x H100-80GB on n0"
    assert said["user, queue"] == "bob, x"
    assert "from 20" in said["wall time"]
    assert said["attempts"].startswith("1")
    assert json.loads(gantree("seff", "a-2", "--json", *at).out)["job"] == "a-2"
    why = gantree("why", "a-2", *at).out
    assert "1 x H100-80GB on n0; wall time" in why.splitlines()[-1]
    assert gantree("seff", "nobody", *at).code == 1


def test_signs_of_nodes_are_counted_over_a_restart(daemon: Daemon, told: Ask) -> None:
    assert told("nodes") == "no node showed a sign in 28 days\n"
    daemon.client.node_fault("n0", xid=48, gpu=1, source="shipper")
    daemon.client.node_fault("n0", source="shipper")
    daemon.kill()
    daemon.start()
    daemon.client.node_fault("n0", reason="fan")
    daemon.client.degrade("gpu-pcie:n0/1", health=0.5)
    found = json.loads(told("nodes", "--days", "7", "--json"))
    (row,) = found["rows"]
    assert found["complete"]
    counts = (row["faults"], row["out"], row["links"], row["slow_ranks"])
    assert (row["node"], row["lemon"], row["days"], counts) == ("n0", False, 1, (2, 0, 1, 0))
    head, line = told("nodes").splitlines()
    assert head.split()[:2] == ["NODE", "DAYS"]
    assert line.split()[:5] == ["n0", "1", "2", "0", "1"]
