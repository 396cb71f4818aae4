"""The coarse tests of a pass rule out only jobs that a search would refuse.

The plain twin considers every job that waits, in the order of the policy, for a place and for preemption. It remembers
what the pass has refused, and no more. It records the same facts as the scheduler, with two exceptions; a life in which
one of them comes up ends there:

    A gang that is started in a pass counts for the coarse test of victims from the next pass on, so it is not stopped
    at once.
    What a job that loses its claim in a pass leaves over goes to nobody who is no head before the next pass.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gantree.core.cycle.cycle import Cycle
from gantree.core.cycle.prefilter import Prefilter
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Scheduler, settled
from gantree.model.events import Event
from gantree.model.facts import ClaimDropped, Fact, GangMoving, GangPlaced, GangPreempted
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.policy.waiting_jobs import QueueEntry
from support.examples import IS_SOAK, sampled, seeds
from support.random_lives import EVERY_KIND, A, B, Lives
from support.shape_lives import with_alternatives

STEPS = 50
FIRST = "goes first"
"""How the reason ends for which a claim is lost to another job."""
FOUND = 12
"""A gang that leaves holds several MIG instances of one GPU; that GPU was not counted as free soon."""
FOUND_UNDER = {"in turn": (384,)}
"""A job that is owed what it asks for, but not on every model, was given a claim that does not give way to it."""
MANY_PLANS = 10**6
"""So that no pass stops at its limit: the twin makes more plans."""


class PlainPrefilter(Prefilter):
    """A pass in which only its own refusals rule anybody out."""

    def queues_to_visit(self, *, guaranteed_only: bool, with_heads: bool) -> list[int]:
        return list(self.queues)

    def visits(
        self, queue: int, *, guaranteed_only: bool, with_heads: Callable[[], bool]
    ) -> Iterable[QueueEntry]:
        if self._only is not None:
            return self._only_in(queue)
        return self._all_in(queue)

    def _all_in(self, queue: int) -> Iterator[QueueEntry]:
        for entry in tuple(self._ledger.waiting.in_queue(queue)):
            if self._ledger.jobs[entry.position.job].phase is Phase.PENDING:
                yield entry

    def may_start(self, state: JobState) -> bool:
        return not self._refusals.of_quota(state) and not self._refusals.of_placement(state)

    def may_preempt(self, state: JobState) -> bool:
        return not self._refusals.of_preemption(state) and self.is_head(state)


class PlainCycle(Cycle):
    """A cycle of such passes."""

    def _prefilter(self, builder: DecisionBuilder, only: frozenset[str] | None) -> Prefilter:
        prefilter = super()._prefilter(builder, only)
        prefilter.__class__ = PlainPrefilter
        return prefilter


class WithPlainTwin(Lives):
    """Random lives beside a scheduler that has no coarse tests."""

    def __init__(self, seed: int, policy: Policy) -> None:
        policy = replace(policy, preemption=replace(policy.preemption, plans=MANY_PLANS))
        self.is_over = False
        self.plain = Scheduler(policy)
        self.plain._cycle.__class__ = PlainCycle
        super().__init__(seed, policy)

    def handle(self, events: list[Event]) -> None:
        decision = settled(self.scheduler, events, self.now)
        self.facts += decision.facts
        plain = settled(self.plain, events, self.now)
        if decision.facts != plain.facts:
            self.is_over = _is_exception(plain.facts)
            assert self.is_over or list(decision.facts) == list(plain.facts)


class WithChoice(WithPlainTwin):
    """Half of the jobs choose the model of GPUs that they run on."""

    def a_job(self, name: str, jobs: list[str]) -> Job:
        job = super().a_job(name, jobs)
        if self.lots.random() < 0.5 or not job.gpus:
            return job
        choose = self.lots.choice(["order", "time", "cost"])
        return replace(job, speeds=((A, 1.0), (B, 0.6)), choose=choose)


class WithShapes(WithPlainTwin):
    """Half of the jobs have alternative shapes."""

    def a_job(self, name: str, jobs: list[str]) -> Job:
        made = super().a_job(name, jobs)
        return with_alternatives(self.lots, made) if self.lots.random() < 0.5 else made


class InLongQueues(WithPlainTwin):
    """More jobs come than end."""

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return [*super().ways(), *[Lives.submit] * 12]


def _is_exception(facts: Sequence[Fact]) -> bool:
    lost = any(isinstance(fact, ClaimDropped) and fact.reason.endswith(FIRST) for fact in facts)
    return lost or not _started(facts).isdisjoint(_stopped(facts))


def _started(facts: Sequence[Fact]) -> set[str]:
    return {fact.job for fact in facts if isinstance(fact, GangPlaced)}


def _stopped(facts: Sequence[Fact]) -> set[str]:
    return {fact.job for fact in facts if isinstance(fact, GangPreempted | GangMoving)}


@pytest.mark.parametrize("policy", EVERY_KIND)
def test_who_is_ruled_out_would_have_been_refused(policy: str) -> None:
    for seed in (*seeds(10, fewest=1), FOUND, *FOUND_UNDER.get(policy, ())):
        live(WithPlainTwin(seed, EVERY_KIND[policy]))


@pytest.mark.parametrize("policy", EVERY_KIND)
def test_who_is_ruled_out_with_a_choice_of_models_would_have_been_refused(policy: str) -> None:
    for seed in seeds(10, fewest=1):
        live(WithChoice(seed, EVERY_KIND[policy]))


@pytest.mark.parametrize("policy", sampled(list(EVERY_KIND), 2))
def test_who_is_ruled_out_with_alternative_shapes_would_have_been_refused(policy: str) -> None:
    for seed in seeds(10, fewest=1):
        live(WithShapes(seed, EVERY_KIND[policy]))


@pytest.mark.parametrize("policy", sampled(list(EVERY_KIND), 4))
def test_who_is_ruled_out_of_a_long_queue_would_have_been_refused(policy: str) -> None:
    """Only the first of each queue is a head, so nobody behind it is looked at but to start. With more reservations
    than an array has bits.
    """
    rules = EVERY_KIND[policy]
    long = replace(rules, backfill=replace(rules.backfill, depth=1, reservations=70))
    for seed in seeds(10, fewest=1):
        live(InLongQueues(seed, long))


LATE_HEADS = {"as it comes": 1005, "cells": 1004, "turns": 1005}
"""Lives in which a job that was given back, or came, replaces the only estimate in a pass over all that wait."""


@pytest.mark.parametrize("policy", LATE_HEADS)
def test_who_has_just_advanced_may_replace_the_only_estimate(policy: str) -> None:
    rules = EVERY_KIND[policy]
    one = replace(rules, backfill=replace(rules.backfill, depth=8, reservations=1))
    for seed in (*(seeds(10) if IS_SOAK else ()), LATE_HEADS[policy]):
        live(InLongQueues(seed, one))


def live(lives: WithPlainTwin) -> None:
    for _ in range(STEPS):
        if not lives.is_over:
            lives.step()
