"""Commands that are given a name which several jobs had: the live one is meant, and an id is always reachable."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
SLEEP = (
    "[{role: w, members: 1, each: {gpus: 1}, run: [sh, -c, 'echo I am $GANTREE_JOB; sleep 600']}]"
)


def submit(daemon: Daemon, name: str, *more: str) -> str:
    text = "\n".join([f"name: {name}", f"gang: {SLEEP}", *more])
    job: str = daemon.client.submit(text, base_dir="/tmp")["jobs"][0]["job"]
    return job


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A job `whole` has ended; `whole-2`, of the same name, is held."""
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
        daemon.client.cancel(submit(daemon, "whole", "hold: true"))
        daemon.wait("whole")
        assert submit(daemon, "whole", "hold: true", "elastic: {min: 1, max: 2}") == "whole-2"
        yield daemon


ASKED = ["why whole", "when whole", "what-if whole --members 2", "defragment whole"]
CHANGES = {
    "hold whole": "held",
    "scale whole --members 2": "scaled",
    "reprioritise whole --priority 7": "reprioritised",
    "release whole": "released",
    "suspend whole": "suspended",
    "resume whole": "resumed",
    "cancel whole": "cancelled",
}


def answer_of(gantree: CommandLine, command: str) -> Any:
    return json.loads(gantree(*command.split(), "--json").out)


def test_every_command_about_a_job_that_waits_means_the_live_one(
    daemon: Daemon, gantree: CommandLine
) -> None:
    for command in ASKED:
        assert answer_of(gantree, command)["job"] == "whole-2", command
    for command, done in CHANGES.items():
        assert answer_of(gantree, command) == {done: ["whole-2"]}, command
    daemon.wait("whole-2")


def test_every_command_about_a_job_that_runs_means_the_live_one(
    daemon: Daemon, gantree: CommandLine
) -> None:
    gantree("release", "whole")
    daemon.wait("whole-2", "running")
    assert answer_of(gantree, "record whole")["job"] == "whole-2"
    assert answer_of(gantree, "curve whole")["job"] == "whole-2"
    output = daemon.client.logs("whole-2", follow=True)
    assert b"I am whole-2" in next(output)
    assert "I am whole-2" in gantree("logs", "whole").out
    assert "whole-2" in gantree("attach", "whole", "--", "printenv", "GANTREE_JOB").out
    rerun = answer_of(gantree, "rerun whole")["jobs"]
    assert [each["name"] for each in rerun] == ["whole"]


def test_a_name_of_several_live_jobs_is_an_error_that_lists_their_ids(
    daemon: Daemon, gantree: CommandLine
) -> None:
    assert submit(daemon, "whole", "hold: true") == "whole-3"
    for command in (*ASKED, *CHANGES, "record whole", "curve whole", "logs whole", "rerun whole"):
        refused = gantree(*command.split())
        assert refused.code == 1, command
        assert "2 live jobs are named whole: whole-2, whole-3; give the id" in refused.err, command
    assert answer_of(gantree, "why whole-3")["job"] == "whole-3"


def test_the_id_of_a_live_job_means_that_job_whoever_else_has_its_name(
    daemon: Daemon, gantree: CommandLine
) -> None:
    assert submit(daemon, "new", "hold: true") == "new"
    assert submit(daemon, "new", "hold: true") == "new-2"
    assert answer_of(gantree, "why new")["job"] == "new"


def test_a_job_that_has_ended_is_reached_by_its_id(daemon: Daemon, gantree: CommandLine) -> None:
    told = gantree("why", "whole")
    assert "job whole has ended; whole-2 has the same name and is meant" in told.err
    assert "id:whole" in told.err
    assert answer_of(gantree, "why id:whole")["phase"] == "cancelled"
    gantree("cancel", "whole")
    daemon.wait("whole-2")
    assert answer_of(gantree, "why whole")["job"] == "whole"
    assert gantree("why", "whole").err == ""
    assert "there is no job nobody" in gantree("why", "nobody").err


def test_what_a_job_used_is_told_of_the_last_of_a_name_that_has_ended(
    daemon: Daemon, gantree: CommandLine
) -> None:
    assert answer_of(gantree, "seff whole")["job"] == "whole"
    gantree("cancel", "whole")
    daemon.wait("whole-2")
    assert answer_of(gantree, "seff whole-2")["job"] == "whole-2"


def test_a_path_of_the_api_means_an_id_first_so_that_programs_never_get_another_job(
    daemon: Daemon,
) -> None:
    assert daemon.client.job("whole")["job"] == "whole"
    assert daemon.client.job_id("whole") == {"job": "whole-2", "instead_of": "whole"}


def test_a_live_service_is_meant_before_jobs_of_its_name(
    daemon: Daemon, gantree: CommandLine
) -> None:
    service = "kind: service\nname: chat\nreplicas: {min: 0, max: 1}\nscale: {on: {metric: rate, target: 1}}\n"
    daemon.client.submit(service + "gang: [{role: r, members: 1, run: [sleep, '60']}]\n")
    assert submit(daemon, "chat", "hold: true") == "chat-2"
    assert gantree("why", "chat").out.startswith("chat wants 0 replicas")
    assert answer_of(gantree, "why id:chat-2")["job"] == "chat-2"
    assert "chat is being cancelled" in gantree("cancel", "chat").out
    assert answer_of(gantree, "why chat")["job"] == "chat-2"


def test_an_array_that_goes_on_is_meant_before_jobs_that_have_ended(
    daemon: Daemon, gantree: CommandLine
) -> None:
    array = submit(daemon, "sweep", "array: 0-1", "hold: true")
    daemon.client.cancel(array)
    daemon.wait(array)
    assert submit(daemon, "sweep", "array: 0-1", "hold: true") == "sweep.2"
    assert answer_of(gantree, "why sweep")["job"] == "sweep.2"
    assert answer_of(gantree, "why sweep-1")["job"] == "sweep.2-1"
