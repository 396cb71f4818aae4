"""Hold and release through the real daemon: by request, by the job file, over a restart."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.model.errors import Conflict, NotFound
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m1: {gpus: 1, gpu: H100-80GB}}
nodes: [{names: n0, machine: m1}]
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "state", CLUSTER) as daemon:
        yield daemon


def submit(daemon: Daemon, name: str, script: str, more: str = "", user: str | None = None) -> None:
    gang = f"gang: [{{role: w, members: 1, each: {{gpus: 1}}, run: [sh, -c, '{script}']}}]"
    daemon.client.submit(f"name: {name}\n{gang}\n{more}\n", base_dir="/tmp", user=user)


def test_a_held_job_stays_held_over_a_restart_until_it_is_released(daemon: Daemon) -> None:
    submit(daemon, "blocker", "sleep 60")
    daemon.wait("blocker", "running")
    submit(daemon, "held", "true")
    assert daemon.client.hold("held") == {"job": "held"}
    assert daemon.client.job("held")["held"]
    daemon.client.cancel("blocker")
    daemon.wait("blocker")
    daemon.kill()
    daemon.start()
    row = daemon.client.job("held", wait_s=0.3)
    assert (row["phase"], row["held"]) == ("pending", True)
    assert "gantree release held" in daemon.client.why("held")["sentence"]
    assert daemon.client.release("held") == {"job": "held"}
    assert daemon.wait("held")["phase"] == "succeeded"


def test_a_job_file_may_ask_to_be_held(daemon: Daemon) -> None:
    submit(daemon, "from-file", "true", "hold: true")
    assert daemon.client.job("from-file")["phase"] == "pending"
    daemon.client.release("from-file")
    assert daemon.wait("from-file")["phase"] == "succeeded"


def test_refusals_come_as_errors(daemon: Daemon) -> None:
    submit(daemon, "runs", "sleep 60")
    daemon.wait("runs", "running")
    with pytest.raises(Conflict, match="only a waiting job can be held"):
        daemon.client.hold("runs")
    with pytest.raises(Conflict, match="runs is not held"):
        daemon.client.release("runs")
    with pytest.raises(NotFound):
        daemon.client.release("nobody")
    daemon.client.cancel("runs")
    daemon.wait("runs")
    with pytest.raises(Conflict, match="has ended"):
        daemon.client.hold("runs")


def test_a_job_is_its_submitters_unless_it_says_otherwise(daemon: Daemon, tmp_path: Path) -> None:
    submit(daemon, "mine", "true")
    submit(daemon, "named", "true", user="ada")
    submit(daemon, "in-file", "true", "user: grace", user="ada")
    rows = {row["job"]: row["user"] for row in daemon.client.jobs()}
    assert (rows["mine"], rows["named"]) == (getpass.getuser(), "ada")
    assert rows["in-file"] == "grace"
