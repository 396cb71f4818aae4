"""Checkpoints of jobs that declared a signal, and of jobs that declared nothing."""

import time

import pytest

from gantree.model.events import CheckpointSaved, GangStarted
from support.gangs import GangStage

ANSWERS = """
step=40
trap 'step=$((step + 1)); echo $step > $GANTREE_CHECKPOINT_ANSWER' USR1
echo ready
while :; do sleep 0.02; done
"""
OF_ITS_OWN_ACCORD = (
    "echo 7 > $GANTREE_CHECKPOINT_ANSWER; sleep 0.3; echo 8 > $GANTREE_CHECKPOINT_ANSWER; sleep 61"
)


def answers(stage: GangStage) -> list[tuple[int, str | None]]:
    return [(event.step, event.request) for event in stage.told(CheckpointSaved)]


def test_the_declared_signal_is_sent_and_the_one_line_file_is_the_answer(stage: GangStage) -> None:
    stage.start("sh", "-c", ANSWERS, checkpoint_signal="SIGUSR1")
    stage.until(lambda: "ready" in stage.log())
    stage.save("r1")
    stage.save("r1")
    stage.until_told(CheckpointSaved)
    stage.save("r1")
    stage.save("r2")
    stage.until_told(CheckpointSaved, 2)
    assert answers(stage) == [(41, "r1"), (42, "r2")]


def test_the_signal_waits_until_the_process_can_take_it(stage: GangStage) -> None:
    stage.start("sh", "-c", "sleep 0.4;" + ANSWERS, checkpoint_signal="SIGUSR1")
    stage.until_told(GangStarted)
    stage.save("r1")
    assert stage.until_told(CheckpointSaved).step == 41
    assert stage.exit_codes() == {}


@pytest.mark.parametrize("signal_name", [None, "SIGUSR2"])
def test_a_job_is_never_sent_a_signal_that_it_did_not_declare(
    stage: GangStage, signal_name: str | None
) -> None:
    script = "trap 'echo signalled' USR1 HUP INT; echo ready; while :; do sleep 0.02; done"
    stage.start("sh", "-c", script, checkpoint_signal=signal_name)
    stage.until(lambda: "ready" in stage.log())
    stage.save("r1")
    time.sleep(0.7)
    stage.cluster.poll()
    assert stage.log() == "ready\n"
    assert stage.exit_codes() == {}


def test_what_a_script_saved_of_its_own_accord_answers_no_request(stage: GangStage) -> None:
    stage.start("sh", "-c", OF_ITS_OWN_ACCORD, checkpoint_signal="SIGUSR1")
    stage.until_told(CheckpointSaved, 2)
    stage.save("r1")
    time.sleep(0.2)
    stage.cluster.poll()
    assert answers(stage) == [(7, None), (8, None)]


def test_the_next_daemon_tells_the_same_answers(stage: GangStage) -> None:
    stage.start("sh", "-c", ANSWERS, checkpoint_signal="SIGUSR1")
    stage.until(lambda: "ready" in stage.log())
    stage.save("r1")
    before = stage.until_told(CheckpointSaved).id
    stage.events.clear()
    stage.open().adopt()
    assert [event.id for event in stage.told(CheckpointSaved)] == [before]


def test_a_request_to_nobody_changes_nothing(stage: GangStage) -> None:
    stage.save("r1", job="unknown")
    stage.start("true")
    stage.until_told(GangStarted)
    stage.until_ended()
    stage.save("r1")
    stage.cluster.poll()
    assert stage.told(CheckpointSaved) == []
    assert dict(stage.cluster.inventory().attempts) == {("j", 1): "ended"}
