"""What becomes of a command whose output nobody wants any more, or that is interrupted: no traceback, exact status."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4, at: {leaf: l0}}]
"""
TALKS = 'i=0; while true; do echo "line $((i+=1))"; sleep 0.1; done'
WITHIN_S = 300.0
BEGINS_SLOWLY = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "gantree.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from gantree.cli.start import start
start()
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a job `talk` that prints for ever."""
    with Daemon(tmp_path_factory.mktemp("streams") / "state", CLUSTER) as running:
        role = {"role": "w", "members": 1, "each": {"gpus": 0}, "run": ["bash", "-c", TALKS]}
        running.client.submit(jobs=[{"name": "talk", "gang": [role]}])
        running.wait("talk", until="running")
        yield running


@pytest.fixture
def started(daemon: Daemon) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a command line in a process of its own."""

    def start(*words: str, **how: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]  # `how` is of many types
            [sys.executable, "-m", "gantree.cli", *words],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how},
            env={**os.environ, "GANTREE_STATE": str(daemon.state_dir)},
        )

    return start


Start = Callable[..., subprocess.Popen[bytes]]
FOLLOWERS = [
    ("logs", "-f", "talk"),
    ("logs", "-f", "-n", "1", "--rank", "0", "talk"),
    ("logs", "-f", "--json", "talk"),
    ("attach", "talk", "--", "bash", "-c", TALKS),
]


@pytest.mark.parametrize("words", FOLLOWERS, ids=" ".join)
def test_ctrl_c_ends_what_follows_a_job_without_a_word(
    started: Start, words: tuple[str, ...]
) -> None:
    process = started(*words, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, complaint) == (130, b"")


def test_ctrl_c_while_the_program_begins_ends_it_as_the_system_would(daemon: Daemon) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGINS_SLOWLY, "jobs"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_an_interrupt_that_is_ignored_stays_ignored(daemon: Daemon) -> None:
    script = f"trap '' INT; exec {sys.executable} -c '{BEGINS_SLOWLY}' --version"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", FOLLOWERS, ids=" ".join)
def test_a_reader_that_had_enough_ends_what_follows_a_job(
    started: Start, words: tuple[str, ...]
) -> None:
    process = started(*words, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert (process.wait(WITHIN_S), process.stderr and process.stderr.read()) == (141, b"")


@pytest.mark.parametrize(
    "words", ["jobs", "jobs --json", "topo", "queues", "--help", "logs --help"]
)
def test_a_reader_that_has_gone_before_is_no_failure_of_ours(started: Start, words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = started(*words.split(), stdout=writer)
    os.close(writer)
    _, complaint = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, complaint) == (141, b"")


@pytest.mark.parametrize("words", ["jobs", "logs -n 1 talk", "--version"])
def test_without_a_standard_output_a_command_says_nothing_and_succeeds(
    daemon: Daemon, words: str
) -> None:
    script = f"exec {sys.executable} -m gantree.cli {words} <&- >&-"
    env = {**os.environ, "GANTREE_STATE": str(daemon.state_dir)}
    done = subprocess.run(["bash", "-c", script], env=env, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_job_whose_output_has_no_room_is_followed_to_its_end_all_the_same(started: Start) -> None:
    with Path("/dev/full").open("wb") as full:
        process = started(
            "run", "--name", "full", "--", "bash", "-c", "echo x; exit 3", stdout=full
        )
    _, complaint = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 3
    assert b"the output of full cannot be printed: No space left on device" in complaint
    assert b"Traceback" not in complaint


@pytest.mark.parametrize("more", [(), ("--rank", "0"), ("--json",)], ids=" ".join)
def test_output_that_is_followed_goes_on_where_it_was_once_there_is_a_daemon_again(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    gates = [tmp_path / "second", tmp_path / "third"]
    says = "echo first; " + "".join(
        f"until test -e {gate}; do sleep 0.02; done; echo {gate.name}; " for gate in gates
    )
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        role = {"role": "w", "members": 1, "each": {"gpus": 0}, "run": ["bash", "-c", says]}
        daemon.client.submit(jobs=[{"name": "slow", "gang": [role]}])
        process = subprocess.Popen(
            [sys.executable, "-m", "gantree.cli", "logs", "-f", "slow", *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "GANTREE_STATE": str(daemon.state_dir)},
        )
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline()]
        daemon.kill()
        complaint = process.stderr.readline()
        assert b"waiting for a daemon" in complaint
        gates[0].touch()
        daemon.start()
        lines.append(process.stdout.readline())
        assert b"gantree: the output of slow continues\n" in iter(process.stderr.readline, b"")
        gates[1].touch()
        rest, complaint = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, complaint) == (0, b"")
    told = b"".join([*lines, rest]).decode()
    if more == ("--json",):
        told = "".join("[{rank}] {line}\n".format(**json.loads(row)) for row in told.splitlines())
    shape = "{}\n" if more == ("--rank", "0") else "[0] {}\n"
    assert told == "".join(map(shape.format, ("first", "second", "third")))
