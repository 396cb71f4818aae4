"""What is remembered of those for whom nobody makes room: a no that hangs on more than room is true of its moment."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gantree.core.cycle.no_room_yet import NoRoomYet
from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import Prospects, Wanted
from gantree.core.preemption.free_capacity import NoRoom, make_room
from gantree.model.events import HoldRequested, ReleaseRequested, TimePassed
from gantree.model.facts import CheckpointRecorded, GangRunning
from gantree.placement.request.preferences import Taste
from gantree.policy.order import Standing
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

FIRM, SPOILT = NoRoom(), NoRoom(firm=False)
QUEUES = (
    QueueRule("s", guarantee={"gpus": 1}),
    QueueRule("e"),
    QueueRule("z", guarantee={"gpus": 4}),
)


def where(state: JobState) -> Standing:
    """Where a job waits."""
    assert state.line is not None, f"{state.job} does not wait"
    return Standing(state.position, state.line)


@pytest.fixture
def stage() -> Stage:
    """z and v hold all GPUs; of z it is not known yet that it runs. u and w wait, alike."""
    stage = Stage(
        cluster(leaves=1, nodes=2, gpus=4), Policy(queues=QUEUES, backfill=Backfill("any"))
    )
    stage.submit(replace(job("z", gpus=4), queue="z", preemptible=False))
    stage.submit(replace(job("v", gpus=4, priority="production"), queue="s"))
    stage.started("v")
    stage.submit(*(replace(job(name, gpus=4), queue="e", priority="research") for name in "uw"))
    return stage


@pytest.mark.parametrize(("refusal", "others"), [(FIRM, True), (SPOILT, False)])
def test_what_is_not_firm_is_true_of_one_job_alone(
    stage: Stage, refusal: NoRoom, others: bool
) -> None:
    ledger, said = stage.scheduler.ledger, NoRoomYet()
    first, behind = where(stage.state("u")), where(stage.state("w"))
    assert first.line == behind.line
    said.say(ledger, first, [refusal], stage.now)
    assert said.stands(ledger, first, stage.now)
    assert said.stands(ledger, behind, stage.now) is others
    assert said.is_firm is others


def test_what_is_not_firm_stands_until_anything_happens_but_that_a_gang_begins(
    stage: Stage,
) -> None:
    ledger, said, u = stage.scheduler.ledger, NoRoomYet(), where(stage.state("u"))
    draft = Draft(ledger, stage.now)
    said.follow(draft)
    said.say(ledger, u, [SPOILT], stage.now)
    assert said.settled(ledger, stage.now) == said.moment(ledger, stage.now)
    draft.record(GangRunning(at=stage.now, job="z", attempt=1))
    said.follow(draft)
    assert said.stands(ledger, u, stage.now)
    assert not said.stands(ledger, u, stage.now + 1.0)
    draft.record(CheckpointRecorded(at=stage.now, job="v", attempt=1, step=1))
    said.follow(draft)
    assert not said.stands(ledger, u, stage.now)
    assert said.settled(ledger, stage.now) is None


def test_what_is_firm_stands_until_its_moment(stage: Stage) -> None:
    ledger, said, u = stage.scheduler.ledger, NoRoomYet(), where(stage.state("u"))
    said.say(ledger, u, [FIRM, NoRoom(later=50.0), NoRoom(later=70.0)], stage.now)
    stage.scheduler.ledger.apply(CheckpointRecorded(at=1.0, job="v", attempt=1, step=1))
    assert said.stands(ledger, u, 49.0)
    assert not said.stands(ledger, u, 50.0)
    assert list(said.moments(ledger)) == [(u.line, 50.0)]
    assert list(said.moments_of(ledger, u)) == [50.0]
    said.forget()
    assert not said.stands(ledger, u, 49.0)


def test_a_gang_that_would_not_stay_is_not_asked_again_as_another_begins_to_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """t would stop v, which borrows; but then y, which is owed a GPU, would stop t."""
    asked = asked_of(stage, monkeypatch)
    stage.submit(
        replace(job("y", gpus=1, priority="batch"), queue="s"),
        replace(job("t", gpus=4, priority="serving"), queue="e"),
    )
    assert asked().count("t") > 0
    assert stage.state("v").phase == "running"
    assert stage.phase("t") == "pending"
    stage.started("z")
    assert asked() == []
    stage.tell(TimePassed)
    assert asked() == []
    stage.wait(1.0)
    assert asked() == ["t"]


def asked_of(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Whom others were asked to make room for on this stage since the last call."""
    names: list[str] = []

    def noted(draft: Draft, wanted: Wanted, taste: Taste, prospects: Prospects) -> NoRoom | None:
        if draft.ledger is stage.scheduler.ledger:
            names.append(wanted.state.job)
        return make_room(draft, wanted, taste, prospects)

    def since() -> list[str]:
        found = names.copy()
        names.clear()
        return found

    monkeypatch.setattr("gantree.core.cycle.cycle.make_room", noted)
    return since


def test_no_moment_is_one_for_those_who_wait_for_something_else_then(stage: Stage) -> None:
    ledger, said = stage.scheduler.ledger, NoRoomYet()
    said.say(ledger, where(stage.state("u")), [NoRoom(later=50.0)], stage.now)
    stage.tell(HoldRequested, job="u")
    assert [at for _, at in said.moments(ledger)] == [50.0]
    stage.tell(HoldRequested, job="w")
    assert not list(said.moments(ledger))
    stage.tell(ReleaseRequested, job="w")
    assert [at for _, at in said.moments(ledger)] == [50.0]
