"""A scheduler that was recovered before each event decides what the one decides that has lived all along.

The twin is folded anew from all the facts so far, so it remembers no answers: whoever lives on what is remembered, and
slept through what would have given him another answer, starts in the twin alone. In these lives nothing is forgotten,
and priorities change a lot, most of all of gangs that leave.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gantree.core.scheduler import Scheduler, settled
from gantree.model.events import Event, HoldRequested, JobSubmitted, PriorityRequested
from gantree.model.phases import Phase
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import seeds
from support.random_lives import EVERY_KIND, WAYS, Lives

PRIORITIES = ("research", "batch", "production", "serving", 150, 350)
LEAVING = (Phase.SAVING, Phase.STOPPING)

STEPS = 50
SEEDS = (
    ("models", 2100004, 110),
    ("cells", 50008, 95),
    ("shortest", 710137, 100),
    ("as it comes", 9008, 50),
    ("quotas", 9039, 50),
    ("as it comes", 9021, 50),
    ("shares", 9005, 50),
    ("shares", 6, 30),
)
"""In these lives, in order: a claimant is admitted only as another one leaves its queue's quota; a gang that goes home
leaves its cell to another one; a spare node is opened for a reservation; a gang that begins to run lets another get a
reservation; such a gang grows; a short job starts before a reservation of the same pass; a gang that starts in a pass
is no victim of it; a job is refused before the first gang of the pass is placed, and gets a reservation then."""


def any_priority(lives: Lives) -> None:
    """Somebody who waits, runs or leaves has another priority."""
    phases = (Phase.PENDING, Phase.RUNNING, *LEAVING)
    lives.of_a_job(PriorityRequested, *phases, priority=lives.lots.choice(PRIORITIES))


def hold(lives: Lives) -> None:
    """Somebody who waits or leaves is held."""
    lives.of_a_job(HoldRequested, Phase.PENDING, *LEAVING)


RESTLESS: tuple[Callable[[Any], None], ...] = (
    *(way for name, way in WAYS.items() if name != "forget"),
    *[any_priority] * 4,
    *[WAYS["end when told"]] * 2,
    hold,
    WAYS["release"],
)


class RecoveredEachTime(Lives):
    """Lives with a twin that was recovered a moment ago."""

    def handle(self, events: list[Event]) -> None:
        self.twins = [(f"recovered before {events[0].id}", self.folded())]
        super().handle(events)

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return RESTLESS


def live(policy: str, seed: int, steps: int) -> None:
    lives = RecoveredEachTime(seed, EVERY_KIND[policy])
    for _ in range(steps):
        lives.step()


@pytest.mark.soak
@pytest.mark.parametrize(("policy", "seed", "steps"), SEEDS)
def test_nobody_sleeps_through_what_a_recovered_scheduler_would_see(
    policy: str, seed: int, steps: int
) -> None:
    live(policy, seed, steps)


@pytest.mark.parametrize("policy", EVERY_KIND)
def test_recovered_before_each_event_a_scheduler_decides_the_same(policy: str) -> None:
    for seed in seeds(10, fewest=1):
        live(policy, seed, STEPS)


def test_a_gang_that_starts_in_a_pass_counts_as_a_victim_from_the_next_one_on() -> None:
    """It is within the guarantee of its queue; the other goes before it there, and needs what a third one leaves."""
    policy = Policy(queues=(QueueRule("a", guarantee={"gpus": 2}), QueueRule("b")))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(replace(job("old", gpus=1, priority="serving", time_limit_s=100), queue="b"))
    stage.started("old")
    stage.cancel("old")
    recovered = Scheduler(policy)
    recovered.recover(stage.facts)
    large = replace(job("large", gpus=4, priority="production"), queue="a")
    small = replace(job("small", gpus=1, priority="batch"), queue="a")
    events = [
        JobSubmitted(id=spec.name, observed_at=stage.now, job=spec.name, spec=spec)
        for spec in (large, small)
    ]
    assert stage.handle(events).facts == settled(recovered, events, stage.now).facts
