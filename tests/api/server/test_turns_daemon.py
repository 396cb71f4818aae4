"""Two counters on one GPU under a real daemon: they take turns, also across kill -9 of the daemon."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import Daemon
from support.gangs import left_over

CLUSTER = """
name: one
tiers: [node]
machines: {m1: {gpus: 1, gpu: H100-80GB}}
nodes: [{names: n0, machine: m1}]
"""
QUANTUM_S = 0.3

POLICY = f"""
priorities: {{notebook: 150, batch: 200}}
time_sharing: {{classes: [notebook], quantum: {QUANTUM_S}}}
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Its policy lets notebooks take turns."""
    with Daemon(tmp_path / "state", CLUSTER, POLICY) as daemon:
        yield daemon
    assert left_over(tmp_path) == []


def start_counter(daemon: Daemon, name: str, folder: Path) -> Path:
    file = folder / name
    script = f"i=0; while :; do i=$((i+1)); echo $i > {file}; sleep 0.01; done"
    each = "{gpu_share: 0.5, gpu_memory_GiB: 20, isolation: time-slicing}"
    gang = f"gang: [{{role: w, members: 1, each: {each}, run: [sh, -c, '{script}']}}]"
    daemon.client.submit(f"name: {name}\npriority: notebook\n{gang}\n", base_dir=str(folder))
    return file


def count(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


def until_suspended(daemon: Daemon, job: str) -> None:
    deadline = time.monotonic() + 300
    while not daemon.client.job(job)["suspended"]:
        assert time.monotonic() < deadline, daemon.client.jobs()
        time.sleep(0.01)


def until_counting(file: Path, beyond: int) -> None:
    deadline = time.monotonic() + 300
    while count(file) <= beyond:
        assert time.monotonic() < deadline, f"{file} stays at {beyond}"
        time.sleep(0.01)


def until_one_counts(files: dict[str, Path], beyond: dict[str, int]) -> None:
    deadline = time.monotonic() + 300
    while all(count(file) == beyond[name] for name, file in files.items()):
        assert time.monotonic() < deadline, f"all stay at {beyond}"
        time.sleep(0.01)


def test_two_counters_on_one_gpu_take_turns_and_go_on_after_kill_9_of_the_daemon(
    daemon: Daemon, tmp_path: Path
) -> None:
    files = {name: start_counter(daemon, name, tmp_path) for name in ("a", "b")}
    for job in ("a", "b", "a"):
        until_suspended(daemon, job)
    daemon.kill()
    time.sleep(0.2)
    then = {name: count(file) for name, file in files.items()}
    until_one_counts(files, then)
    time.sleep(2 * QUANTUM_S)
    now = {name: count(file) for name, file in files.items()}
    stood = [name for name in files if now[name] == then[name]]
    assert len(stood) == 1, f"from {then} to {now}: one counts on, the other waits for a daemon"
    daemon.start()
    until_counting(files[stood[0]], beyond=now[stood[0]])
    until_suspended(daemon, stood[0])
    assert {daemon.client.cancel(name)["job"] for name in files} == set(files)
    assert {daemon.wait(name)["phase"] for name in files} == {"cancelled"}
