"""CPU time and memory of real processes: while they run, after they have ended, and across a restart."""

import json
import sys

import pytest

from gantree.model.host_use import HostUse
from support.gangs import GangStage

MIB = 1 << 20
WORK = f"""
import os, pathlib, sys, time
held = bytearray({64 * MIB})
def work(until):
    while time.process_time() < until: pass
work(0.5)
if os.fork() == 0:
    work(0.5)
    os._exit(0)
os.wait()
print("worked", flush=True)
while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)
"""


def use(stage: GangStage) -> HostUse:
    found = stage.cluster.host_use("j", 1)
    assert found is not None
    return found


def without_cgroups(stage: GangStage) -> None:
    """Have its processes found by their parents, as where no cgroup may be created."""
    for file in stage.state_dir.glob("**/shim.json"):
        changed = file.with_suffix(".changed")
        changed.write_text(json.dumps({**json.loads(file.read_text()), "cgroup": None}))
        changed.replace(file)


@pytest.mark.parametrize("members", [1, 2])
def test_what_a_gang_uses_is_counted_while_it_runs_and_after_its_end(
    stage: GangStage, members: int
) -> None:
    go = stage.state_dir / "go"
    stage.start(sys.executable, "-c", WORK, str(go), members=members)
    stage.until(lambda: all(stage.log(rank) == "worked\n" for rank in range(members)))
    running = use(stage)
    assert 0.95 * members <= running.cpu_s < 60.0 * members
    assert running.memory_GiB >= members * 64 / 1024
    assert running.ran_s > 0
    stage.open().adopt()
    assert use(stage).cpu_s >= running.cpu_s
    without_cgroups(stage)
    by_processes = use(stage)
    assert 0.95 * members <= by_processes.cpu_s < 60.0 * members
    assert by_processes.memory_GiB >= members * 64 / 1024
    go.touch()
    assert stage.until_ended() == 0
    ended = use(stage)
    assert ended.cpu_s >= running.cpu_s - 0.05
    assert ended.memory_GiB >= members * 64 / 1024
    assert use(stage) == ended


def test_nothing_is_known_of_an_attempt_that_was_never_started(stage: GangStage) -> None:
    assert stage.cluster.host_use("j", 1) is None
