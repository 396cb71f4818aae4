"""The coarse tests of a pass rule out only jobs that a search would refuse.

The plain twin considers every job that waits, in the order of the policy, for a place and for preemption. It remembers
what the pass has refused, and no more. It records the same facts as the scheduler, with one exception: a gang that is
started in a pass counts for the coarse test of victims from the next pass on. A life in which such a gang is stopped at
once ends there.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gantree.core.cycle.cycle import Cycle, _Pass
from gantree.core.cycle.prefilter import Prefilter, _class_of
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.state import JobState
from gantree.core.queue.waiting_rows import ineligible_rows
from gantree.core.reservations.selection import Desk
from gantree.core.scheduler import Scheduler, settled
from gantree.model.events import Event
from gantree.model.facts import Fact, GangPlaced, GangPreempted
from gantree.policy.waiting_jobs import QueueEntry
from support.examples import seeds
from support.random_lives import EVERY_KIND, Lives

STEPS = 50
FOUND = (12,)
"""A gang that leaves holds several MIG instances of one GPU; that GPU was not counted as free soon."""
MANY_PLANS = 10**6
"""So that no pass stops at its limit: the twin makes more plans."""


class PlainPrefilter(Prefilter):
    """A pass in which only its own refusals rule anybody out."""

    @property
    def _survives(self) -> Any:
        survives = np.ones(len(self._rows.entry), dtype=np.bool_)
        survives[ineligible_rows(self._ledger, self._rows, self._now)] = False
        return survives

    def still_counts(self, entry: QueueEntry, row: int, *, tells: bool) -> bool:
        return True

    def may_start(self, state: JobState) -> bool:
        if _class_of(state) in self._without_quota:
            return False
        return self._key(state) not in self._without_place

    def may_make_room(self, state: JobState) -> bool:
        refused = _class_of(state) in self._without_room or state.job in self._told_without_room
        return not refused and self._is_head(state)


class PlainCycle(Cycle):
    """A cycle of such passes."""

    def _new_pass(self, builder: DecisionBuilder, only: frozenset[str] | None = None) -> _Pass:
        ledger = builder.ledger
        prefilter = PlainPrefilter(ledger, builder.now, self._needs, self._ever_fits, only)
        return _Pass(prefilter, Desk(ledger, self._preferences))


class WithPlainTwin(Lives):
    """Random lives beside a scheduler that has no coarse tests."""

    def __init__(self, seed: int, policy_name: str) -> None:
        policy = EVERY_KIND[policy_name]
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
            self.is_over = bool(_started(plain.facts) & _stopped(plain.facts))
            assert self.is_over or list(decision.facts) == list(plain.facts)


def _started(facts: Sequence[Fact]) -> set[str]:
    return {fact.job for fact in facts if isinstance(fact, GangPlaced)}


def _stopped(facts: Sequence[Fact]) -> set[str]:
    return {fact.job for fact in facts if isinstance(fact, GangPreempted)}


@pytest.mark.parametrize("policy", EVERY_KIND)
def test_who_is_ruled_out_would_have_been_refused(policy: str) -> None:
    for seed in (*seeds(10), *FOUND):
        lives = WithPlainTwin(seed, policy)
        for _ in range(STEPS):
            if not lives.is_over:
                lives.step()
