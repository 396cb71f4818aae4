"""Jobs that are alike and come together: each is decided about as if there had been none like it before.

The twin is told the same, and forgets before each question what it found out of one alike: it searches for each job
from the beginning, asks every queue, and reads each wish anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.cycle.awake import Awake
from gantree.core.cycle.right_behind import RightBehind
from gantree.core.scheduler import Decision, Scheduler
from gantree.model.events import Event, JobSubmitted
from gantree.placement.choice import search
from gantree.placement.counting import one_node
from gantree.placement.request import topology_request as wish
from gantree.policy.quota import Quota
from gantree.policy.rules import Policy
from support.examples import examples
from support.random_lives import POLICIES, Lives, a_job, assert_same

MOST_ALIKE = 8


class Forgetful(dict[Any, Any]):
    """Keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forget it."""


@contextmanager
def remembering_nobody() -> Iterator[None]:
    """Within this nothing is kept of one job for the next."""
    moments = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "placed_again", lambda occupancy, job, taste: None)
        patch.setattr(search, "_LAST", Forgetful())
        patch.setattr(wish, "_LAST", Forgetful())
        patch.setattr(one_node, "last_node_for", lambda problem: None)
        patch.setattr(Quota, "is_unruled", lambda self, node: False)
        patch.setattr(Awake, "moment", lambda self, ledger: next(moments))
        patch.setattr(RightBehind, "is_of", lambda self, ledger, line: False)
        yield


class Crowds(Lives):
    """Lives in which jobs come in crowds of some that are alike, and a twin that remembers nobody."""

    def __init__(self, seed: int, policy: Policy) -> None:
        with remembering_nobody():
            self.forgetful = Scheduler(policy)
        super().__init__(seed, policy)

    def handle(self, events: list[Event]) -> None:
        super().handle(events)
        with remembering_nobody():
            assert_same("remembering nobody", self.last, self.forgetful.handle(events))

    def decided(self, events: list[Event], decision: Decision) -> None:
        self.last = decision

    def submit(self) -> None:
        kinds = [
            a_job(self.lots, "kind", list(self.scheduler.ledger.jobs), self.guesses)
            for _ in range(self.lots.randint(1, 2))
        ]
        self.told += 1
        names = [f"j{self.told}-{number}" for number in range(self.lots.randint(1, MOST_ALIKE))]
        specs = [replace(self.lots.choice(kinds), name=name) for name in names]
        if self.lots.random() < 0.7:
            specs = [replace(spec, roles=(replace(spec.roles[0], members=1),)) for spec in specs]
        self.handle(
            [
                JobSubmitted(id=f"s{spec.name}", observed_at=self.now, job=spec.name, spec=spec)
                for spec in specs
            ]
        )


@settings(max_examples=examples(9), deadline=None)
@given(st.sampled_from(list(POLICIES)), st.integers(0, 2**32 - 1))
def test_who_is_like_one_before_is_decided_about_as_if_nobody_had_been(
    policy: str, seed: int
) -> None:
    lives = Crowds(seed, POLICIES[policy])
    for _ in range(12):
        if lives.lots.random() < 0.5:
            lives.submit()
        else:
            lives.step()
