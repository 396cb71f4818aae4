"""`gantree history jobs` on a real daemon, which is killed in between."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gantree.api.client.client import Client
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
