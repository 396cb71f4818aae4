"""A signal before the time limit, and a line in the log, on real processes: once each."""

from gantree.model.events import GangStarted
from gantree.model.orders import SignalGang, WriteToLog
from support.gangs import GangStage

ORDER = SignalGang(id="j/1/warn", job="j", attempt=1, signal="SIGUSR1")
SCRIPT = (
    "while [ ! -e {go}.$RANK ]; do sleep 0.01; done; trap 'echo warned' USR1; echo up;"
    " while :; do sleep 0.02; done"
)


def test_each_rank_is_told_once_as_soon_as_it_listens_also_across_a_restart(
    stage: GangStage,
) -> None:
    go = stage.state_dir / "go"
    stage.start("sh", "-c", SCRIPT.format(go=go), members=2)
    stage.until_told(GangStarted)
    (stage.state_dir / "go.0").touch()
    stage.until(lambda: "up" in stage.log(0))
    stage.cluster.carry_out(ORDER)
    stage.until(lambda: stage.log(0) == "up\nwarned\n")
    stage.open().adopt()
    stage.cluster.carry_out(ORDER)
    (stage.state_dir / "go.1").touch()
    stage.until(lambda: stage.log(1) == "up\nwarned\n")
    assert stage.log(0) == "up\nwarned\n"
    assert stage.cluster.inventory().status("j", 1) == "running"


def test_a_gang_that_is_told_to_stop_is_not_warned_any_more(stage: GangStage) -> None:
    stage.start(
        "sh", "-c", "trap 'echo warned' USR1; trap '' TERM; echo up; while :; do sleep 0.02; done"
    )
    stage.until(lambda: "up" in stage.log())
    stage.stop(grace_s=0.3)
    stage.cluster.carry_out(ORDER)
    assert stage.until_ended() == 137
    assert stage.log() == "up\n"


def test_a_line_is_written_once_into_the_log_of_each_member_also_across_a_restart(
    stage: GangStage,
) -> None:
    stage.start("sh", "-c", "echo up; while :; do sleep 0.02; done", members=2)
    stage.until(lambda: stage.log(0) == stage.log(1) == "up\n")
    line = WriteToLog(id="j/1/idle-warning-1", job="j", attempt=1, text="its GPUs are idle")
    stage.cluster.carry_out(line)
    stage.open().adopt()
    stage.cluster.carry_out(line)
    assert stage.log(0) == stage.log(1) == "up\ngantree: its GPUs are idle\n"
    stage.cluster.carry_out(WriteToLog(id="j/1/idle-warning-2", job="j", attempt=1, text="again"))
    assert stage.log(0).endswith("gantree: again\n")
