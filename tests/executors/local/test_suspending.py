"""Gangs that take turns: suspended where they are, let go on, stopped and lost meanwhile."""

import os
import signal
import time
from pathlib import Path

import pytest

from gantree.executors.local.shim.shim import process_stat, read_json
from gantree.model.events import GangEnded, GangStarted, MemberLost
from gantree.model.orders import ResumeGang, SuspendGang
from support.gangs import GangStage, left_over

COUNTS = "i=0; while :; do i=$((i+1)); echo $i > {file}.$RANK; sleep 0.01; done"


def suspend(stage: GangStage, turn: int, job: str = "j", epoch: int = 0) -> None:
    order = SuspendGang(id=f"{job}/1/turn-{turn}", job=job, attempt=1, turn=turn, epoch=epoch)
    stage.cluster.carry_out(order)


def resume(stage: GangStage, turn: int, job: str = "j", epoch: int = 0) -> None:
    order = ResumeGang(id=f"{job}/1/turn-{turn}", job=job, attempt=1, turn=turn, epoch=epoch)
    stage.cluster.carry_out(order)


def states(stage: GangStage) -> list[str]:
    """State letters of all processes of all jobs."""
    stats = [process_stat(pid) for pid in left_over(stage.state_dir)]
    return [stat[0] for stat in stats if stat is not None]


def until_suspended(stage: GangStage, processes: int = 1) -> None:
    """All stopped, looked at twice: a process shows no mark for a moment while it becomes another command.

    Whoever waits in vfork for a child that is stopped is in state D, and goes no further than its child.
    """
    for _ in range(2):
        stage.until(lambda: "T" in (found := states(stage)) and set(found) <= {*"TD"})
        stage.until(lambda: len(states(stage)) >= processes)
        time.sleep(0.05)


def until_going_on(stage: GangStage) -> None:
    stage.until(lambda: "T" not in states(stage))


def counts(file: Path, ranks: int) -> list[int]:
    return [int(Path(f"{file}.{rank}").read_text() or 0) for rank in range(ranks)]


def start_counting(stage: GangStage, file: Path, members: int = 1, processes: int = 1) -> None:
    stage.start("sh", "-c", COUNTS.format(file=file), members=members, processes=processes)
    ranks = members * processes
    stage.until(lambda: all(Path(f"{file}.{rank}").exists() for rank in range(ranks)))


def test_a_counter_stops_while_it_is_suspended_and_goes_on_where_it_was(
    stage: GangStage, tmp_path: Path
) -> None:
    start_counting(stage, tmp_path / "count", members=2, processes=2)
    suspend(stage, 1)
    until_suspended(stage, 4)
    then = counts(tmp_path / "count", 4)
    time.sleep(0.2)
    assert counts(tmp_path / "count", 4) == then
    assert stage.cluster.inventory().status("j", 1) == "running"
    resume(stage, 2)
    stage.until(
        lambda: all(
            now > before for now, before in zip(counts(tmp_path / "count", 4), then, strict=True)
        )
    )
    assert not stage.told(GangEnded)


def test_what_a_rank_has_started_is_suspended_too_even_in_another_session(
    stage: GangStage, tmp_path: Path
) -> None:
    script = f"setsid sh -c '{COUNTS.format(file=tmp_path / 'count')}' & sleep 60"
    stage.start("sh", "-c", script)
    stage.until((tmp_path / "count.0").exists)
    suspend(stage, 1)
    until_suspended(stage, 3)
    then = counts(tmp_path / "count", 1)
    time.sleep(0.1)
    assert counts(tmp_path / "count", 1) == then
    resume(stage, 2)
    stage.until(lambda: counts(tmp_path / "count", 1) > then)


def test_processes_that_keep_forking_are_all_suspended(stage: GangStage) -> None:
    stage.start(
        "sh", "-c", "while :; do setsid sh -c 'sleep 0.003 & sleep 0.002' & sleep 0.004; done"
    )
    stage.until_told(GangStarted)
    for turn in (1, 3, 5):
        suspend(stage, turn)
        until_suspended(stage)
        resume(stage, turn + 1)
        until_going_on(stage)


def test_a_gang_that_is_told_to_wait_at_its_start_waits(stage: GangStage, tmp_path: Path) -> None:
    stage.start("sh", "-c", COUNTS.format(file=tmp_path / "count"))
    suspend(stage, 1)
    stage.until_told(GangStarted)
    until_suspended(stage)
    resume(stage, 2)
    stage.until((tmp_path / "count.0").exists)


def test_an_old_turn_carried_out_late_or_twice_changes_nothing(stage: GangStage) -> None:
    stage.start("sleep", "600")
    stage.until_told(GangStarted)
    suspend(stage, 3)
    until_suspended(stage)
    resume(stage, 2)
    suspend(stage, 3)
    time.sleep(0.1)
    assert states(stage) == ["T"]
    resume(stage, 4)
    suspend(stage, 3)
    resume(stage, 4)
    until_going_on(stage)


def test_a_replaced_leader_suspends_nobody(stage: GangStage) -> None:
    stage.start("sleep", "600", epoch=2)
    stage.until_told(GangStarted)
    suspend(stage, 1, epoch=1)
    time.sleep(0.1)
    assert "T" not in states(stage)
    stage.stop(0.0, epoch=2)
    stage.until_ended()


def test_a_turn_of_an_attempt_that_is_not_there_is_nothing(stage: GangStage) -> None:
    suspend(stage, 1)
    resume(stage, 2)
    stage.cluster.poll()
    assert stage.events == []
    assert stage.cluster.inventory().status("j", 1) == "absent"


def test_a_suspended_gang_that_is_stopped_gets_to_handle_its_signal(stage: GangStage) -> None:
    stage.start("sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done")
    stage.until(lambda: stage.log() == "up\n")
    suspend(stage, 1)
    until_suspended(stage)
    stage.stop(grace_s=20.0)
    assert stage.until_ended() == 7
    assert stage.log().endswith("bye\n")


def test_a_suspended_gang_that_ignores_its_signal_is_killed_after_the_grace(
    stage: GangStage,
) -> None:
    stage.start("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.02; done", members=2)
    stage.until(lambda: stage.log(0) == stage.log(1) == "up\n")
    suspend(stage, 1)
    until_suspended(stage, 2)
    stage.stop(grace_s=0.1)
    assert stage.until_ended() == 137


def test_a_turn_that_comes_after_the_stop_suspends_nobody(stage: GangStage) -> None:
    stage.start("sh", "-c", "trap 'sleep 0.2; exit 5' TERM; echo up; while :; do sleep 0.02; done")
    stage.until(lambda: stage.log() == "up\n")
    stage.stop(grace_s=20.0)
    suspend(stage, 1)
    assert stage.until_ended() == 5


def test_nothing_of_a_suspended_gang_outlives_its_shim(stage: GangStage) -> None:
    stage.start("sh", "-c", "setsid sleep 60 & sleep 60", members=2)
    shim = stage.state_dir / "runs/j/1/m0/shim.json"
    stage.until(lambda: shim.exists() and len(left_over(stage.state_dir)) >= 6)
    suspend(stage, 1)
    until_suspended(stage, 6)
    os.kill(read_json(str(shim))["pid"], signal.SIGKILL)
    stage.until_told(MemberLost)
    assert stage.until_ended() == 137
    assert left_over(stage.state_dir) == []


@pytest.mark.parametrize("said_again", [False, True])
def test_the_next_daemon_finds_a_gang_suspended_and_lets_it_go_on(
    stage: GangStage, tmp_path: Path, *, said_again: bool
) -> None:
    start_counting(stage, tmp_path / "count")
    suspend(stage, 1)
    until_suspended(stage)
    stage.cluster.close()
    stage.open().adopt()
    if said_again:
        suspend(stage, 1, epoch=1)
    then = counts(tmp_path / "count", 1)
    time.sleep(0.1)
    assert counts(tmp_path / "count", 1) == then
    resume(stage, 2, epoch=1)
    stage.until(lambda: counts(tmp_path / "count", 1) > then)
    stage.stop(0.0, epoch=1)
    stage.until_ended()


def test_a_checkpoint_signal_reaches_a_suspended_rank_when_it_goes_on(stage: GangStage) -> None:
    script = "trap 'echo 5 > $GANTREE_CHECKPOINT_ANSWER; echo saved' USR2; echo up; while :; do sleep 0.02; done"
    stage.start("sh", "-c", script, checkpoint_signal="SIGUSR2")
    stage.until(lambda: stage.log() == "up\n")
    suspend(stage, 1)
    until_suspended(stage)
    stage.save()
    time.sleep(0.1)
    assert stage.log() == "up\n"
    resume(stage, 2)
    stage.until(lambda: stage.log().endswith("saved\n"))


def test_a_file_that_cannot_be_read_for_a_while_costs_no_gang(stage: GangStage) -> None:
    stage.start("sleep", "600")
    stage.until_told(GangStarted)
    turn = stage.state_dir / "runs/j/1/m0/turn.json"
    assert turn.parent.is_dir()
    turn.symlink_to("/proc/self/mem")  # to read it is EIO
    with pytest.raises(OSError, match="Input/output"):
        read_json(str(turn))
    time.sleep(1.2)  # two looks of the shim
    assert stage.cluster.inventory().status("j", 1) == "running"
    turn.unlink()
    stage.stop()
    assert stage.until_ended() == 128 + signal.SIGTERM
