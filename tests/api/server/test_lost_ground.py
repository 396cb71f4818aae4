"""A daemon whose disk is full, whose state directory was deleted, or whose socket is another's: it says so."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from time import sleep

import pytest

from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.api.http import unix_socket
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.journal.state_directory import LOCK, StateDirectory
from gantree.model.errors import JournalError, Unreachable
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: n0, machine: m2}]
"""
JOB = "name: NAME\ngang: [{role: w, members: 1, each: {gpus: 1}, run: [sleep, '600']}]\n"
LIMITED = JOB.replace("NAME", "limited") + "time_limit: 20s\n"
READY = Request[object]("GET", "/readyz")


def until_said(daemon: Daemon, text: str) -> None:
    while text not in daemon.output.read_text():
        assert daemon.process.poll() is None, daemon.output.read_text()
        sleep(0.01)


def until_refused(daemon: Daemon) -> None:
    """Hand in jobs until the disk has no room for one."""
    with pytest.raises(JournalError, match="is full"):
        for number in count():
            daemon.client.submit(JOB.replace("NAME", f"more-{number}"))


# The disk is full


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Eight megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)],
        capture_output=True, check=False,
    ).returncode == 0  # fmt: skip
    if not mounted:
        pytest.skip("a file system can be mounted by root alone")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """No room is left within this block."""
    filler = disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            size = 1 << 16
            while size:
                try:
                    file.write(b"x" * size)
                except OSError:
                    size //= 2
        yield
    finally:
        filler.unlink()


def test_with_a_full_disk_it_is_not_ready_as_soon_as_a_step_has_failed(
    disk: Path, tmp_path: Path
) -> None:
    with Daemon(disk / "state", CLUSTER) as daemon:
        daemon.output = tmp_path / "daemon.out"
        daemon.stop()
        daemon.start()
        daemon.client.submit(LIMITED)
        daemon.wait("limited", until="running")
        with filled(disk):
            until_refused(daemon)
            # the turn of a job that was taken fails, or that of the time limit
            until_said(daemon, "no step was made")
            with pytest.raises(Unreachable, match=r"no step is made: .* is full"):
                daemon.client.send(READY)
        assert daemon.wait("limited")["phase"] == "timed-out"
        assert daemon.client.send(READY)


def test_with_a_full_disk_it_is_not_ready_though_no_step_has_failed(disk: Path) -> None:
    with Daemon(disk / "state", CLUSTER) as daemon:
        assert daemon.client.send(READY)
        with (
            filled(disk),
            pytest.raises((JournalError, Unreachable), match=r"full|no room"),
        ):
            daemon.client.send(READY)
        assert daemon.client.send(READY)


# The state directory is not there any more


def lost_daemon(tmp_path: Path) -> Daemon:
    """Its output stays where its state does not."""
    daemon = Daemon(tmp_path / "state", CLUSTER, listen="127.0.0.1:0")
    daemon.output = tmp_path / "daemon.out"
    daemon.output.touch()
    daemon.start()
    return daemon


def token(daemon: Daemon) -> str:
    return (daemon.state_dir / "token").read_text().strip()


@pytest.mark.parametrize("way", ["deleted", "moved", "made anew", "database deleted"])
def test_once_its_directory_is_gone_a_daemon_takes_no_job_and_says_why(
    tmp_path: Path, way: str
) -> None:
    daemon = lost_daemon(tmp_path)
    state = daemon.state_dir
    over_tcp = Client(daemon.url, token(daemon))
    try:
        over_tcp.submit(JOB.replace("NAME", "before").replace("600", "1"), base_dir="/tmp")
        if way == "moved":
            state.rename(tmp_path / "elsewhere")
        elif way == "database deleted":
            (state / FILE).unlink()
        else:
            shutil.rmtree(state, ignore_errors=True)
        if way == "made anew":
            state.mkdir(exist_ok=True)
        with pytest.raises(JournalError, match=r"deleted or moved|replaced by another"):
            over_tcp.submit(JOB.replace("NAME", "after"), base_dir="/tmp")
        until_said(daemon, "no step was made")
        with pytest.raises(Unreachable, match=r"while the daemon .* uses it"):
            over_tcp.send(READY)
    finally:
        daemon.process.send_signal(15)
        daemon.process.wait(timeout=300)


def test_no_daemon_starts_beside_one_whose_directory_was_deleted(tmp_path: Path) -> None:
    first = lost_daemon(tmp_path)
    try:
        shutil.rmtree(first.state_dir)
        second = Daemon(tmp_path / "state", CLUSTER)
        second.output = tmp_path / "second.out"
        second.output.touch()
        with pytest.raises(RuntimeError, match=rf"\(process {first.process.pid}\) used it"):
            second.start()
    finally:
        first.process.send_signal(15)
        first.process.wait(timeout=300)
    with second:
        assert second.client.health()["pid"] == second.process.pid


def test_a_claim_of_the_path_ends_with_its_holder(tmp_path: Path) -> None:
    with closing(StateDirectory(tmp_path / "state")):
        shutil.rmtree(tmp_path / "state")
        with pytest.raises(JournalError, match="still runs"):
            StateDirectory(tmp_path / "state")
    StateDirectory(tmp_path / "state").close()


def test_nothing_is_committed_once_the_directory_was_replaced_in_a_transaction(
    tmp_path: Path,
) -> None:
    with closing(SqliteJournal(tmp_path)) as journal:

        def replace() -> None:
            with journal.database.writing():
                (tmp_path / LOCK).unlink()
                (tmp_path / LOCK).touch()

        with pytest.raises(JournalError, match="replaced"):
            replace()


# The socket is another's


def test_a_daemon_that_stops_leaves_the_socket_of_another_alone(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        path = daemon.state_dir / unix_socket.FILE
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            daemon.stop()
            assert path.is_socket()
    assert not (daemon.state_dir / unix_socket.FILE).exists()
