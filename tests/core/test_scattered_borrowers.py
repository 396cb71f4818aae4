"""A guarantee is taken back in one domain, although the gangs that borrow it are scattered over all of them.

Each leaf holds three gangs that are within the guarantee of their queue, and one, the youngest, that borrows.
"""

from collections.abc import Collection
from dataclasses import replace

from gantree.core.explain.explain import why
from gantree.model.events import PriorityRequested
from gantree.model.facts import GangPlaced, GangPreempted
from gantree.model.jobs import Job
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

LEAVES, NODES, GPUS = 4, 4, 4
TWO_QUEUES = (
    QueueRule("many", guarantee={"gpus": 48}),
    QueueRule("whole", guarantee={"gpus": 16}),
)


def of(queue: str, name: str, members: int = 1, *, preemptible: bool = True) -> Job:
    made = job(name, members, GPUS, required="leaf" if members > 1 else None)
    return replace(made, queue=queue, preemptible=preemptible)


def scattered(
    queues: tuple[QueueRule, ...] = TWO_QUEUES,
    late: str = "many",
    never_stopped: Collection[str] = (),
) -> Stage:
    """Three gangs of queue `many` in each leaf, then a fourth in each, of queue late."""
    stage = Stage(cluster(leaves=LEAVES, nodes=NODES, gpus=GPUS), Policy(queues=queues))
    old = [f"old{number}" for number in range(LEAVES * NODES)]
    stage.submit(*(of("many", name, preemptible=name not in never_stopped) for name in old))
    stage.started(*old)
    for leaf in range(LEAVES):
        stage.ended(f"old{leaf * NODES + NODES - 1}")
    stage.submit(*(of(late, f"late{number}") for number in range(LEAVES)))
    stage.started(*(f"late{number}" for number in range(LEAVES)))
    assert not stopped(stage)
    return stage


def stopped(stage: Stage) -> dict[str, str]:
    return {fact.job: fact.cause for fact in stage.facts if isinstance(fact, GangPreempted)}


def placed(stage: Stage) -> list[str]:
    return [fact.job for fact in stage.facts if isinstance(fact, GangPlaced)]


def test_gangs_of_one_leaf_stop_in_place_of_those_that_borrow_in_others() -> None:
    stage = scattered()
    stage.submit(of("whole", "gang", NODES))
    gone = stopped(stage)
    assert len(gone) == NODES
    assert set(gone.values()) == {"reclaim"}
    assert sum(each.startswith("late") for each in gone) == 1
    for each in gone:
        stage.ended(each)
    assert placed(stage)[-1] == "gang"
    assert stopped(stage) == gone


def test_what_stays_of_the_queue_is_no_less_than_its_guarantee() -> None:
    """Another gang of a whole leaf would leave less, so it waits, though it is within the guarantee by its count."""
    more = (replace(TWO_QUEUES[0], guarantee={"gpus": 56}), TWO_QUEUES[1])
    stage = scattered(more)
    stage.submit(of("whole", "gang", NODES))
    assert not stopped(stage)
    assert "guarantee" in str(why(stage.scheduler.ledger, "gang", stage.now))


def test_gangs_of_another_queue_do_not_stop_for_those_that_borrow() -> None:
    queues = (*TWO_QUEUES, QueueRule("late"))
    stage = scattered(queues, late="late")
    stage.submit(of("whole", "gang", NODES))
    assert not stopped(stage)


def test_gangs_that_may_never_be_stopped_stay() -> None:
    """Those that would be stopped otherwise."""
    stage = scattered()
    stage.submit(of("whole", "gang", NODES))
    stays = {each for each in stopped(stage) if each.startswith("old")}
    stage = scattered(never_stopped=stays)
    stage.submit(of("whole", "gang", NODES))
    assert len(stopped(stage)) == NODES
    assert not stays & set(stopped(stage))


def test_of_lower_priority_first() -> None:
    stage = scattered()
    for number in (*range(3), *range(4, 7), *range(8, 11)):
        stage.tell(PriorityRequested, job=f"old{number}", priority="production")
    stage.submit(of("whole", "gang", NODES))
    assert set(stopped(stage)) == {"old12", "old13", "old14", "late3"}
