"""The daemon dies at any moment; whoever takes over knows everything, and nothing runs twice."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gantree.executors.local import gang_launcher, processes
from gantree.executors.local.gang_launcher import GangLauncher
from gantree.executors.local.shim import shim
from gantree.executors.local.shim.shim import read_json, write_json
from gantree.model.events import GangEnded, GangStarted, GangStartFailed, MemberLost, RankExited
from support.daemon import Program
from support.gangs import GangStage, left_over

DAEMON = """
import sys, time
from pathlib import Path
from support.daemon import Program
from support.gangs import GangStage, four_nodes
stage = GangStage(Path(sys.argv[1]), four_nodes())
print("up", flush=True)
stage.start("sh", "-c", sys.argv[2], members=2, processes=2)
print("begun", flush=True)
while True:
    stage.cluster.poll()
    time.sleep(0.01)
"""


def killed_daemon(state_dir: Path, script: str, wait_for: str, then_s: float) -> None:
    """A daemon that starts a gang and is killed so long after it has said something."""
    with Program("-c", DAEMON, str(state_dir), script) as daemon:
        daemon.says(wait_for)
        time.sleep(then_s)
        daemon.process.kill()
        daemon.process.wait()


def shim_command(stage: GangStage, folder: Path) -> list[str]:
    return [sys.executable, "-I", "-S", shim.__file__, str(folder), str(stage.state_dir), "0"]


def test_a_gang_outlives_its_daemon_and_its_end_is_learnt_once(
    stage: GangStage, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.02; done; exit $((RANK * 10))"
    killed_daemon(stage.state_dir, script, "begun", 0.3)
    stage.open().adopt()
    assert stage.cluster.inventory().status("j", 1) == "running"
    stage.until_told(GangStarted)
    gate.touch()
    exit_code = stage.until_ended()
    codes = stage.exit_codes()
    assert exit_code in {10, 20, 30}
    assert codes[0] in {0, 143}
    assert set(codes) == {0, 1, 2, 3}
    assert len({event.id for event in stage.events}) == len(stage.events)


def test_what_ended_while_no_daemon_was_there_is_told_by_the_next(stage: GangStage) -> None:
    killed_daemon(stage.state_dir, "sleep 0.4; [ $RANK != 2 ] || exit 5", "begun", 0.2)
    deadline = time.monotonic() + 300
    while left_over(stage.state_dir) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    stage.open().adopt()
    assert stage.until_ended() == 5
    first = [event.id for event in stage.events]
    stage.open().adopt()
    assert [event.id for event in stage.events] == first * 2


@pytest.mark.parametrize("then_s", [0.0, 0.003, 0.006, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06])
def test_a_daemon_killed_while_it_starts_a_gang_leaves_one_gang_or_none(
    stage: GangStage, tmp_path: Path, then_s: float
) -> None:
    starts = tmp_path / "starts"
    script = f"echo $RANK >> {starts}; sleep 0.1"
    killed_daemon(stage.state_dir, script, "up", then_s)
    stage.open().adopt()
    stage.start("sh", "-c", script, members=2, processes=2)
    assert stage.until_ended() == 0
    assert sorted(starts.read_text().split()) == ["0", "1", "2", "3"]


def test_a_start_that_was_only_put_down_is_finished(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GangLauncher, "_launch", lambda self, gang, mig_ids: None)
        stage.start("true", members=2)
    stage.open().adopt()
    assert stage.until_ended() == 0


def test_a_start_that_was_only_put_down_can_still_be_stopped(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GangLauncher, "_launch", lambda self, gang, mig_ids: None)
        stage.start("true", members=2)
        stage.open()
        stage.stop()
    stage.open().adopt()
    assert stage.until_ended() == 143
    assert [type(event) for event in stage.events] == [GangEnded]


def test_if_not_every_shim_can_be_spawned_nothing_runs(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[Path] = []
    spawn = processes.spawn_shim

    def only_two(folder: Path, state_dir: Path, epoch: int) -> int:
        spawned.append(folder)
        if len(spawned) > 2:
            raise BlockingIOError(11, "no more processes")
        return spawn(folder, state_dir, epoch)

    monkeypatch.setattr(processes, "spawn_shim", only_two)
    stage.start("sleep", "600", members=4)
    assert stage.until_ended() == 126
    assert "no more processes" in stage.told(GangStartFailed)[0].reason
    assert stage.told(MemberLost) == []


def test_a_shim_that_cannot_come_up_is_a_failed_start(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn_nothing(folder: Path, state_dir: Path, epoch: int) -> int:
        return os.posix_spawn("/bin/false", ["false"], {})

    monkeypatch.setattr(processes, "spawn_shim", spawn_nothing)
    stage.start("sleep", "600", members=2)
    assert stage.until_ended() == 126
    assert "its shim ended before it could start anything" in stage.told(GangStartFailed)[0].reason


def test_a_second_shim_of_the_same_member_exits_at_once(stage: GangStage, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    stage.start("sh", "-c", f"echo $RANK >> {starts}; sleep 0.5")
    stage.until_told(GangStarted)
    command = shim_command(stage, stage.state_dir / "runs/j/1/m0")
    assert subprocess.run(command, check=False, timeout=300).returncode == 0
    assert stage.until_ended() == 0
    assert subprocess.run(command, check=False, timeout=300).returncode == 0
    assert starts.read_text() == "0\n"


def test_a_shim_that_finds_the_lock_held_starts_nothing(
    stage: GangStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            processes, "spawn_shim", lambda *told: os.posix_spawn("/bin/true", ["true"], {})
        )
        stage.start("touch", str(tmp_path / "ran"))
    folder = stage.state_dir / "runs/j/1/m0"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = shim_command(stage, folder)
        assert subprocess.run(command, check=False, timeout=300).returncode == 0
    assert not (folder / "shim.json").exists()
    assert not (tmp_path / "ran").exists()


def test_after_a_reboot_what_ran_is_lost_and_nothing_is_started(
    stage: GangStage, tmp_path: Path
) -> None:
    stage.start("sh", "-c", f"echo $RANK >> {tmp_path}/starts", members=2)
    stage.until_ended()
    run = stage.state_dir / "runs/j/1"
    for path in (run / "gang.json", run / "m0/shim.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"boot_id": "an-earlier-boot"}))
    for path in [*run.glob("m0/e*.json"), *run.glob("m1/*.json")]:
        path.unlink()
    stage.events.clear()
    stage.open().adopt()
    assert stage.until_ended() == 137
    assert [event.reason for event in stage.told(MemberLost)] == [
        "node n0 was restarted",
        "node n1 was restarted",
    ]
    assert sorted((tmp_path / "starts").read_text().split()) == ["0", "1"]


def test_a_shim_killed_while_no_daemon_was_there_is_found_lost(stage: GangStage) -> None:
    killed_daemon(stage.state_dir, "(setsid sleep 61 &); exec sleep 61", "begun", 0.3)
    introduced = stage.state_dir / "runs/j/1/m1/shim.json"
    while not introduced.exists():
        time.sleep(0.01)
    os.kill(shim.read_json(str(introduced))["pid"], 9)
    stage.open().adopt()
    assert stage.until_ended() == 137
    assert [event.member for event in stage.told(MemberLost)] == [1]
    assert left_over(stage.state_dir) == []


def test_close_leaves_the_gang_running(stage: GangStage) -> None:
    stage.start("sleep", "600")
    stage.until_told(GangStarted)
    stage.cluster.close()
    stage.open().adopt()
    assert stage.cluster.inventory().status("j", 1) == "running"


def test_a_gang_that_runs_goes_on_where_a_new_daemon_finds_a_full_disk(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start("sleep", "600", members=2)
    stage.until_told(GangStarted)
    stage.cluster.close()
    monkeypatch.setattr(gang_launcher, "write_plain", full_disk)
    stage.open().adopt()
    assert stage.cluster.inventory().status("j", 1) == "running"
    assert stage.told(GangStartFailed) == []


def full_disk(path: str, value: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", path)


def test_which_rank_failed_first_and_when_do_not_depend_on_the_wall_clock(stage: GangStage) -> None:
    """It was set back by an hour before the second ended, and nobody was there to see either end."""
    script = "sleep 0.2; exit $((RANK + 3))"
    stage.start("sh", "-c", script, members=2)
    stage.until_ended()
    for rank, later_s in ((0, 0.0), (1, 5.0)):
        path = stage.state_dir / f"runs/j/1/m{rank}/exit.{rank}.json"
        told = read_json(str(path)) | {"was_stopping": False, "exit_code": rank + 3}
        moment = {"ended_steady_s": told["ended_steady_s"] - 9.0 + later_s}
        write_json(str(path), told | moment | {"ended_at": told["ended_at"] - 3600.0 * rank})
    stage.events.clear()
    stage.open().adopt()
    assert stage.until_ended() == 3
    first, second = stage.told(RankExited)
    assert (first.rank, second.rank) == (0, 1)
    assert first.occurred_at is not None and second.occurred_at is not None
    assert 4.0 < second.occurred_at - first.occurred_at < 6.0
    assert second.occurred_at < second.observed_at
