"""Queues that take back what they lent, all at once: one walk asks them all."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gantree.core.scheduler import Scheduler
from gantree.model.events import ClusterObserved, Event, JobSubmitted
from gantree.model.facts import RoomClaimed
from gantree.model.jobs import Job
from gantree.policy.rules import Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from support.random_lives import EVERY_KIND, Lives

SITE = cluster(leaves=2, nodes=2, gpus=4)


TWO_COHORTS = (
    QueueRule("x", cohort="x", guarantee={"gpus": 4}, limit={"gpus": 4}),
    *(QueueRule(f"x/{name}", guarantee={"gpus": 2}) for name in "abc"),
    QueueRule("x/d", borrow={"gpus": 1}),
    QueueRule("y", cohort="y", guarantee={"gpus": 10}, limit={"gpus": 10}),
    *(QueueRule(f"y/{name}", guarantee={"gpus": 2}, borrow={"gpus": 8}) for name in "abcde"),
)


def of(queue: str, gpus: int) -> Job:
    """A gang of one member."""
    return replace(job("x", gpus=gpus), queue=queue)


def _submitted(gangs: Sequence[Job], name: str, at: float) -> list[Event]:
    names = [f"{name}-{number}" for number in range(len(gangs))]
    return [
        JobSubmitted(id=each, observed_at=at, job=each, spec=replace(gang, name=each))
        for each, gang in zip(names, gangs, strict=True)
    ]


@pytest.mark.parametrize("full", [False, True])
def test_queues_that_take_back_what_they_lent_are_asked_in_one_walk(full: bool) -> None:
    policy = Policy(
        queues=TWO_COHORTS, order=("priority", "arrival"), preemption=Preemption(across=False)
    )
    scheduler = Scheduler(policy)
    borrowing = [of("y/a", 1)] * 10
    owed = [of(f"y/{queue}", 1) for queue in "bcd"]
    if full:  # the first has no room below the limit of its cohort, were who borrows there gone
        borrowing += [of("x/a", 2), of("x/b", 1), of("x/d", 1)]
        owed.insert(0, of("x/c", 2))
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    scheduler.handle(_submitted(borrowing, "j0", 0.0))
    facts = scheduler.handle(_submitted(owed, "j1", 1.0)).facts
    assert [fact.job for fact in facts if isinstance(fact, RoomClaimed)] == [
        f"j1-{number}" for number in range(full, len(owed))
    ]


def test_a_pass_that_stops_at_its_limit_goes_on_behind_what_it_refused() -> None:
    # four jobs with two variants each were told starts and refused room: a pass made all its plans for them again
    lives = Lives(117, EVERY_KIND["models"])
    for _ in range(36):
        lives.step()
