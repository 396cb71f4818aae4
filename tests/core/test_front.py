"""Who may ask others for room: the front of each queue, and what a stop is said to cost."""

from dataclasses import replace

from gantree.core.cycle.fronts import FRONT, Fronts
from gantree.core.queue.preemption_rules import harm_of
from gantree.model.events import HoldRequested, PriorityRequested
from gantree.model.jobs import Checkpoint
from gantree.model.phases import Phase
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def crowded(*, members: int) -> Stage:
    """A job of a lower class runs; a whole front of gangs stands before one that could stop it, and is kept out."""
    policy = Policy(backfill=Backfill("any"))
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), policy)
    stage.submit(job("low", gpus=4, priority="research"), job("stays", gpus=4, priority="serving"))
    stage.started("low", "stays")
    stage.submit(*(job(f"wide{n}", members=members, gpus=4) for n in range(FRONT)))
    stage.submit(job("behind", gpus=4))
    return stage


def test_who_stands_behind_the_front_of_its_queue_asks_nobody_until_its_turn() -> None:
    stage = crowded(members=2)
    assert stage.phase("low") is Phase.RUNNING
    stage.cancel("wide0")
    assert stage.phase("low") is Phase.STOPPING
    assert stage.state("low").preempted_by == "behind"


def test_gangs_that_can_never_fit_keep_nobody_from_asking() -> None:
    assert crowded(members=3).state("low").preempted_by == "behind"


def test_jobs_that_are_held_keep_nobody_from_asking() -> None:
    stage = crowded(members=2)
    stage.tell(HoldRequested, job="wide7")
    assert stage.state("low").preempted_by == "behind"


def test_who_stands_behind_the_front_takes_room_that_is_free() -> None:
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), Policy(backfill=Backfill("any")))
    stage.submit(job("stays", gpus=4, priority="serving"))
    stage.submit(*(job(f"wide{n}", members=2, gpus=4) for n in range(FRONT)), job("behind", gpus=4))
    assert stage.phase("behind") is Phase.STARTING


def test_a_gang_that_can_be_asked_to_save_loses_what_saving_takes_at_most() -> None:
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), Policy(restart_s=10.0))
    stage.submit(job("saves", gpus=4, checkpoint=Checkpoint(grace_s=60.0)), job("loses", gpus=4))
    stage.started("saves", "loses")
    stage.wait(1000)
    ledger = stage.scheduler.ledger
    assert harm_of(ledger, stage.state("loses"), stage.now) == 4 * (1000 + 10)
    assert harm_of(ledger, stage.state("saves"), stage.now) == 4 * (60 + 10)


def test_a_newcomer_that_goes_first_takes_the_place_of_an_estimate_that_comes_after_it() -> None:
    policy = Policy(backfill=Backfill("promised", reservations=1), preemption=Preemption(by="none"))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(job("runs", gpus=4))
    stage.started("runs")
    stage.submit(job("later", gpus=4))
    assert list(stage.scheduler.ledger.bookings) == ["later"]
    stage.submit(job("first", gpus=4, priority="production"))
    assert list(stage.scheduler.ledger.bookings) == ["first"]
    stage.tell(PriorityRequested, job="later", priority="serving")
    assert list(stage.scheduler.ledger.bookings) == ["later"]


def test_a_newcomer_of_a_queue_that_uses_more_leaves_an_estimate_of_another_alone() -> None:
    """Its class is higher, but shares come first: who was told a start is asked before it, and keeps it."""
    policy = Policy(
        order=("share", "priority", "arrival"),
        queues=(QueueRule("a"), QueueRule("b")),
        backfill=Backfill("promised", reservations=1),
        preemption=Preemption(by="none"),
    )
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(replace(job("runs", gpus=4), queue="b"))
    stage.started("runs")
    stage.submit(replace(job("told", gpus=4), queue="a"))
    stage.submit(replace(job("first", gpus=4, priority="serving"), queue="b"))
    assert list(stage.scheduler.ledger.bookings) == ["told"]


def test_who_waits_to_start_again_is_of_the_front_once_that_is_over() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), Policy(backfill=Backfill("any")))
    stage.submit(job("fails", gpus=4, restarts=1, backoff_s=5.0), job("next", gpus=4))
    stage.started("fails")
    stage.ended("fails", exit_code=1)
    stage.submit(*(job(f"waits{n}", gpus=4) for n in range(2 * FRONT)))
    fronts, ledger = Fronts(), stage.scheduler.ledger
    queue = stage.state("fails").queue
    assert len(fronts.of(ledger, queue, stage.now)) == FRONT + 1
    assert len(fronts.of(ledger, queue, stage.now + 5.0)) == FRONT
