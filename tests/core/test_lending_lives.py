"""Random lives of queues that lend by use: what they keep is what a plain recount of the facts gives."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any

import pytest

from gantree.model.events import GangIdlenessObserved
from gantree.model.facts import (
    AttemptEnded,
    Fact,
    GangPlaced,
    GangSuspended,
    GuaranteeKept,
    MemberMissed,
)
from gantree.model.idle_facts import GangIdlenessNoted
from gantree.model.phases import Phase
from gantree.policy.quota.peak_use import STEPS
from support.examples import seeds
from support.random_lives import LENDERS, POLICIES, WAYS, A, Lives
from support.same_ledger import differences

GUARANTEED = {
    "a": {"gpus": 12.0, f"gpus/{A}": 6.0},
    "a/c": {"gpus": 6.0, f"gpus/{A}": 6.0},
    "b": {"gpus": 8.0},
}
RULES = {rule.path: rule for rule in LENDERS if rule.lend_idle is not None}


def levels(lives: "LendingLives", queue: str, resource: str) -> Iterator[tuple[float, float]]:
    """When how much of a resource was held below a queue, from the facts."""
    ledger, held, idle = lives.scheduler.ledger, dict[str, float](), set[str]()
    for fact in lives.facts:
        if isinstance(fact, GangPlaced) and _is_below(lives, fact, queue):
            held[fact.job] = ledger.accounts.amounts.held(fact.placement).get(resource, 0.0)
        elif isinstance(fact, AttemptEnded):
            held.pop(fact.job, None)
            idle.discard(fact.job)
        elif isinstance(fact, GangIdlenessNoted):
            (idle.discard if fact.since is None else idle.add)(fact.job)
        elif isinstance(fact, GangSuspended | MemberMissed):
            idle.discard(fact.job)
        yield fact.at, sum(amount for name, amount in held.items() if name not in idle)


def _is_below(lives: "LendingLives", fact: GangPlaced, queue: str) -> bool:
    return f"{lives.queue_of_job[fact.job]}/".startswith(f"{queue}/")


def kept(lives: "LendingLives", queue: str, resource: str, guaranteed: float) -> float:
    """The most that was held within the window, or all while the first window has not passed."""
    rule = RULES[queue].lend_idle
    assert rule is not None
    now, step_s, most = lives.scheduler.now, rule.after_s / STEPS, rule.keep.get(resource, 0.0)
    begun = next(f.at for f in lives.facts if isinstance(f, GuaranteeKept) and f.queue == queue)
    if ceil(begun / step_s) * step_s + rule.after_s > now:
        return guaranteed
    before = 0.0
    for at, held in levels(lives, queue, resource):
        if ceil(at / step_s) * step_s + rule.after_s > now:
            most = max(most, before)  # it was left within the window
        before = held
    return min(guaranteed, max(most, before))


class LendingLives(Lives):
    """Lives without changes of the site, in which each gang holds what it counts for."""

    queue_of_job: dict[str, str]

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return [*WAYS.values(), *[LendingLives.idle] * 4]

    def idle(self) -> None:
        since = self.lots.choice([None, self.now])
        self.of_an_attempt(GangIdlenessObserved, Phase.RUNNING, since=since)

    def decided(self, events: object, decision: object) -> None:
        jobs = self.scheduler.ledger.jobs.values()
        known = getattr(self, "queue_of_job", {})
        self.queue_of_job = known | {state.job: state.spec.queue for state in jobs}


@pytest.mark.parametrize("seed", seeds(40))
def test_what_is_kept_is_what_a_recount_of_the_facts_gives(seed: int) -> None:
    lives = LendingLives(seed, POLICIES["lends by use"])
    for step in range(90):
        lives.step()
        if step == 45:
            lives.twins = [("restored", lives.make_twin()), ("folded", lives.folded())]
        found = lives.scheduler.ledger.accounts.lending.kept
        if step % 3 == 0 and not lives.scheduler.ledger.site.cordoned:
            for queue, fact in found.items():
                for resource, amount in fact.keeps:
                    expected = kept(lives, queue, resource, GUARANTEED[queue][resource])
                    assert amount == pytest.approx(expected), (queue, resource)
    facts: list[Fact] = lives.facts
    assert len({fact.queue for fact in facts if isinstance(fact, GuaranteeKept)}) == 3
    for name, twin in lives.twins:
        assert not differences(lives.scheduler.ledger, twin.ledger), name
