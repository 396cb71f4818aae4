"""A real daemon with its reader: no question holds up a turn or is lost, no process outlives the daemon."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.model.errors import Conflict, GantreeError, NotFound, Unreachable
from support.daemon import Daemon
from support.processes import below

CLUSTER = """\
name: one
tiers: [node]
machines: {m: {gpus: 2}}
nodes: [{names: n0, machine: m}]
"""
JOB = "name: {name}\ngang: [{{role: w, members: 1, each: {{gpus: {gpus}}}, run: [{run}]}}]\n"
WITHIN_S = 300.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("reader") / "state", CLUSTER) as running:
        running.client.submit(JOB.format(name="runs", gpus=2, run="sleep, '600'"))
        running.client.submit(JOB.format(name="waits", gpus=1, run="'true'"))
        running.wait("runs", until="running")
        yield running


def reader_of(daemon: Daemon, other_than: int = 0) -> int:
    """The process of the reader, once there is one."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        found = below(daemon.process.pid).get("gantree-reader", [])
        if found and found != [other_than]:
            return found[0]
        assert time.monotonic() < deadline, "there is no reader"
        time.sleep(0.01)


def once_there(ask: Callable[[], Any]) -> Any:
    """An answer, however long a busy machine takes to start another host: a question waits only so long for one."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return ask()
        except Unreachable:
            assert time.monotonic() < deadline, "no other host"


def test_a_reader_that_does_not_answer_holds_up_neither_turns_nor_submissions(
    daemon: Daemon,
) -> None:
    daemon.client.why("waits")
    reader = reader_of(daemon)
    (host,) = below(daemon.process.pid)["gantree-host"]
    os.kill(host, signal.SIGSTOP)  # it would let the reader go on
    os.kill(reader, signal.SIGSTOP)
    answered: list[Any] = []
    try:
        asking = threading.Thread(target=lambda: answered.append(daemon.client.why("waits")))
        asking.start()
        submitted = daemon.client.submit(JOB.format(name="later", gpus=0, run="'true'"))
        assert daemon.wait(submitted["jobs"][0]["job"])["phase"] == "succeeded"
        assert not answered
    finally:
        os.kill(host, signal.SIGCONT)
        os.kill(reader, signal.SIGCONT)
    asking.join(WITHIN_S)
    assert answered[0]["phase"] == "pending"


def test_a_reader_that_is_stopped_is_let_go_on(daemon: Daemon) -> None:
    reader = reader_of(daemon)
    os.kill(reader, signal.SIGSTOP)
    assert daemon.client.why("waits")["phase"] == "pending"
    assert reader_of(daemon) == reader


def test_who_was_told_of_something_finds_it_in_every_answer(daemon: Daemon) -> None:
    for number in range(8):
        name = f"own-{number}"
        daemon.client.submit(JOB.format(name=name, gpus=1, run="'true'"))
        assert daemon.client.jobs()[-1]["name"] == name
        assert daemon.client.why(name)["phase"] == "pending"
        daemon.client.cancel(name)
        assert daemon.client.why(name)["phase"] == "cancelled"


def test_errors_are_the_same_from_the_reader(daemon: Daemon) -> None:
    with pytest.raises(NotFound, match=r"^there is no job nobody$"):
        daemon.client.why("nobody")
    with pytest.raises(NotFound, match=r"^there is no node n9$"):
        daemon.client.node("n9")
    with pytest.raises(Conflict, match="runs is running: moves are made for jobs that wait"):
        daemon.client.defragment("runs")


def test_readers_that_are_killed_under_questions_leave_none_unanswered(daemon: Daemon) -> None:
    wrong: list[object] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                told = daemon.client.why("waits"), daemon.client.jobs(), daemon.client.queues()
                if told[0]["phase"] != "pending" or not told[1] or not told[2]:
                    wrong.append(told)
            except GantreeError as error:
                wrong.append(error)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for each in asking:
        each.start()
    killed = 0
    for _ in range(3):
        killed = reader_of(daemon, killed)
        for _ in range(3):
            daemon.client.why("waits")  # behind what the last one left
        os.kill(killed, signal.SIGKILL)
    reader_of(daemon, killed)
    stop.set()
    for each in asking:
        each.join(WITHIN_S)
    assert wrong == []


def test_a_host_of_readers_that_is_killed_comes_back(daemon: Daemon) -> None:
    reader = reader_of(daemon)
    (host,) = below(daemon.process.pid)["gantree-host"]
    os.kill(host, signal.SIGKILL)
    assert once_there(daemon.client.jobs)[0]["name"] == "runs"
    reader_of(daemon, reader)
    assert daemon.client.why("waits")["phase"] == "pending"
    assert daemon.client.queues()
    log = daemon.output.read_text()
    assert "another host is started" in log
    assert below(daemon.process.pid)["gantree-host"] != [host]
    assert not Path(f"/proc/{host}").exists(), "nobody has waited for it"


def test_the_reader_ends_with_a_daemon_that_is_killed(daemon: Daemon) -> None:
    reader_of(daemon)
    forked = [below(daemon.process.pid)[name] for name in ("gantree-host", "gantree-reader")]
    daemon.kill()
    deadline = time.monotonic() + WITHIN_S
    while any(_is_there(pid) for pids in forked for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    daemon.start()
    assert daemon.client.why("waits")["phase"] == "pending"


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
