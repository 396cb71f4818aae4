"""A scheduler that was recovered before each event decides what the one decides that has lived all along.

The twin is folded anew from all the facts so far, so it remembers no answers: whoever lives on what is remembered, and
slept through what would have given him another answer, starts in the twin alone. In these lives nothing is forgotten,
and priorities change a lot, most of all of gangs that leave.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gantree.model.events import Event, HoldRequested, PriorityRequested
from gantree.model.phases import Phase
from gantree.policy.rules import Backfill, Boost, Policy, Preemption, QueueRule, TimeSharing
from gantree.testing.examples import examples
from gantree.testing.random_lives import POLICIES, WAYS, A, B, Lives

PRIORITIES = ("research", "batch", "production", "serving", 150, 350)
LEAVING = (Phase.SAVING, Phase.STOPPING)

MODELS = (
    QueueRule("a", weight=2, cohort="x", lend={"gpus": 6}, guarantee={f"gpus/{A}": 8}),
    QueueRule("a/c", guarantee={f"gpus/{A}": 4}, limit={"gpus": 12}),
    QueueRule("a/d", guarantee={"gpus": 3}, user_limit={"gpus": 4}),
    QueueRule("b", cohort="x", guarantee={f"gpus/{B}": 4}, most_running_per_user=1),
    QueueRule("e", most_waiting=6),
)
CELLS = (
    QueueRule("a"),
    QueueRule("a/c", cells=(("node", 1),), limit={"gpus": 10}),
    QueueRule("a/d", guarantee={"gpus": 3}),
    QueueRule("b", cells=(("leaf", 1),), user_limit={"gpus": 6}),
    QueueRule("e", guarantee={"gpus": 2}),
)
IN_TURN = Backfill("none")
MIXED = {
    "turn users": Policy(queues=MODELS, share_users=True, backfill=IN_TURN),
    "turn users cells": Policy(queues=CELLS, share_users=True, backfill=IN_TURN, half_life_s=60.0),
    "cells quotas": Policy(
        queues=CELLS, share_users=True, half_life_s=60.0, backfill=Backfill("promised", 3, 0.5)
    ),
    "models": Policy(
        queues=MODELS,
        share_users=True,
        boosts=(Boost(150, 60.0, queue="b"), Boost(-150, 200.0, user="ann")),
    ),
    "models order": Policy(
        queues=MODELS,
        order=("priority", "attained", "share", "arrival"),
        attained_levels=(100.0, 1000.0),
        preemption=Preemption("order"),
        share_users=True,
    ),
    "moves cells": Policy(queues=CELLS, defragment="apply", evictions_per_day=2, min_run_s=20.0),
    "any": Policy(
        queues=MODELS,
        backfill=Backfill("any"),
        preemption=Preemption(gain=0.5),
        order=("priority", "remaining_service", "arrival"),
    ),
    "turns quotas": Policy(
        queues=MODELS, time_sharing=TimeSharing(("research", "batch"), 15.0), grace_s=5.0
    ),
}
"""Quotas of models, cells, users and turns at once, beside the policies that have one of these each."""
EVERY_KIND = POLICIES | MIXED

STEPS = 50
SEEDS = (
    ("models", 2100004, 110),
    ("cells", 50008, 95),
    ("shortest", 710137, 100),
)
"""Lives in which a claimant is admitted only as another one leaves its queue's quota, in which who goes home leaves his
cell to another one, and in which a node that is kept as a spare is opened for a start that was told."""


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


@pytest.mark.parametrize(("policy", "seed", "steps"), SEEDS)
def test_nobody_sleeps_through_what_a_recovered_scheduler_would_see(
    policy: str, seed: int, steps: int
) -> None:
    live(policy, seed, steps)


@pytest.mark.parametrize("policy", EVERY_KIND)
def test_recovered_before_each_event_a_scheduler_decides_the_same(policy: str) -> None:
    for seed in range(examples(4)):
        live(policy, seed, STEPS)
