"""A scheduler that was recovered before each event decides what the one decides that has lived all along.

The twin is folded anew from all the facts so far, so it remembers no answers: whoever lives on what is remembered, and
slept through what would have given him another answer, starts in the twin alone. In these lives nothing is forgotten,
and priorities change a lot, most of all of gangs that leave.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gantree.core.explain.explain import when, why
from gantree.core.ledger.invariants import check
from gantree.core.scheduler import Decision, Scheduler, settled
from gantree.model.events import (
    Event,
    GangStarted,
    HoldRequested,
    JobSubmitted,
    PriorityRequested,
)
from gantree.model.facts import Fact, ReservationMade, RoomClaimed
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import seeds
from support.random_lives import EVERY_KIND, WAYS, Lives
from support.shape_lives import with_alternatives

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


ARRIVING: tuple[Callable[[Any], None], ...] = (
    *[WAYS["submit"]] * 6,
    *(WAYS[name] for name in ("end", "end when told", "save", "cancel")),
    any_priority,
)


class RecoveredEachTime(Lives):
    """Lives with a twin that was recovered a moment ago."""

    def handle(self, events: list[Event]) -> None:
        self.twins = [(f"recovered before {events[0].id}", self.folded())]
        super().handle(events)

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return RESTLESS


class Crowded(RecoveredEachTime):
    """Lives in which gangs of whole GPUs arrive, several at once, where all is held or claimed already."""

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return ARRIVING

    def a_job(self, name: str, jobs: list[str]) -> Job:
        while True:
            made = super().a_job(name, jobs)
            if all(role.shape.gpus for role in made.roles):
                return made


class WithShapes(RecoveredEachTime):
    """Half of the jobs have alternative shapes."""

    def a_job(self, name: str, jobs: list[str]) -> Job:
        made = super().a_job(name, jobs)
        return with_alternatives(self.lots, made) if self.lots.random() < 0.5 else made

    def decided(self, events: list[Event], decision: Decision) -> None:
        ledger = self.scheduler.ledger
        check(ledger)
        waiting = [job for job, state in ledger.jobs.items() if state.phase is Phase.PENDING]
        for name in waiting if self.told % 8 == 0 else ():
            why(ledger, name, self.now)
            when(ledger, name, self.now)


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


@pytest.mark.parametrize("policy", EVERY_KIND)
def test_recovered_before_each_event_it_decides_the_same_on_jobs_with_alternatives(
    policy: str,
) -> None:
    for seed in seeds(10, fewest=1):
        lives = WithShapes(seed, EVERY_KIND[policy])
        for _ in range(STEPS):
            lives.step()


@pytest.mark.parametrize(
    ("policy", "seed", "steps"),
    [("as it comes", 5, 11), ("shares", 11, 18), ("as it comes", 4, 21)],
)
def test_while_everything_is_held_a_recovered_scheduler_decides_the_same_on_arrivals(
    policy: str, seed: int, steps: int
) -> None:
    lives = Crowded(seed, EVERY_KIND[policy])
    for _ in range(steps):
        lives.step()


def decided_alike(stage: Stage, events: Sequence[Event]) -> Sequence[Fact]:
    """The facts on these events, of this scheduler and of one that was recovered a moment before."""
    recovered = Scheduler(stage.policy)
    recovered.recover(stage.facts)
    facts = stage.handle(events).facts
    assert facts == settled(recovered, events, stage.now).facts
    return facts


def test_who_lost_a_claim_to_an_arrival_is_considered_before_a_lower_arrival() -> None:
    """The lower one would stop the gang that is left, and lose its claim at once to the one that was displaced."""
    stage = Stage(cluster(leaves=1, nodes=1, gpus=8))
    for name in ("old", "older"):
        stage.submit(job(name, gpus=4, priority="research"))
        stage.started(name)
    stage.submit(job("displaced", gpus=4, priority="batch"))
    arrivals = [job("first", gpus=4, priority="serving"), job("last", gpus=4, priority="batch")]
    facts = decided_alike(
        stage, [stage.event(JobSubmitted, job=spec.name, spec=spec) for spec in arrivals]
    )
    claims = [fact.job for fact in facts if isinstance(fact, RoomClaimed)]
    assert claims == ["first", "displaced"]


def test_once_a_gang_runs_that_began_later_than_it_was_to_end_others_may_wait_for_its_end() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4))
    stage.submit(job("late", gpus=2, priority="batch", time_limit_s=100))
    stage.submit(job("next", gpus=4, priority="batch", time_limit_s=100))
    stage.wait(500)
    assert not stage.scheduler.ledger.reservations
    facts = decided_alike(stage, [stage.event(GangStarted, job="late", attempt=1)])
    assert [fact.job for fact in facts if isinstance(fact, ReservationMade)] == ["next"]


def test_a_gang_that_starts_in_a_pass_counts_as_a_victim_from_the_next_one_on() -> None:
    """It is within the guarantee of its queue; the other goes before it there, and needs what a third one leaves."""
    policy = Policy(queues=(QueueRule("a", guarantee={"gpus": 2}), QueueRule("b")))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(replace(job("old", gpus=1, priority="serving", time_limit_s=100), queue="b"))
    stage.started("old")
    stage.cancel("old")
    large = replace(job("large", gpus=4, priority="production"), queue="a")
    small = replace(job("small", gpus=1, priority="batch"), queue="a")
    decided_alike(
        stage, [stage.event(JobSubmitted, job=spec.name, spec=spec) for spec in (large, small)]
    )
