"""A daemon that is starting holds its directory and does not listen yet: clients wait for it, and say so."""

from contextlib import closing
from pathlib import Path
from time import sleep

import pytest

from gantree.api.client import failover
from gantree.api.client.client import Client
from gantree.api.http import unix_socket
from gantree.cli.main import main
from gantree.journal.state_directory import StateDirectory
from gantree.model.errors import Unreachable
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m1: {gpus: 1, gpu: H100-80GB}}
nodes: [{names: n0, machine: m1}]
"""


def test_a_client_waits_for_a_daemon_that_is_starting(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "state", CLUSTER)
    daemon.spawn()
    try:
        while unix_socket.starting_daemon(daemon.state_dir) is None:
            sleep(0.001)
        assert daemon.client.health()["pid"] == daemon.process.pid
    finally:
        daemon.stop()


def test_a_command_says_whom_it_waits_for_and_in_the_end_that_it_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(failover, "RETRY_WITHIN_S", 0.3)
    state = tmp_path / "state"
    with closing(StateDirectory(state)), pytest.raises(SystemExit) as ended:
        main(["jobs", "--state", str(state)])
    assert ended.value.code == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"gantree: the daemon in {state} is starting; waiting for it"
    assert second.startswith(f"gantree: the daemon in {state} (process ")
    assert second.endswith("is starting and does not answer yet; try again, or see its log")


class Saying(Client):
    """A client that records what it says."""

    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.said: list[str] = []

    def _say(self, sentence: str) -> None:
        self.said.append(sentence)


def test_a_client_says_once_that_it_waits_however_often_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "RETRY_WITHIN_S", 0.3)
    state = tmp_path / "state"
    client = Saying(state)
    with closing(StateDirectory(state)):
        for _ in range(2):
            with pytest.raises(Unreachable):
                client.jobs()
    assert client.said == [f"the daemon in {state} is starting; waiting for it"]


def test_nobody_waits_where_no_daemon_holds_the_directory(tmp_path: Path) -> None:
    state = tmp_path / "state"
    StateDirectory(state).close()
    with pytest.raises(Unreachable, match=rf"start one: gantree up --state {state}"):
        Client(state).jobs()
