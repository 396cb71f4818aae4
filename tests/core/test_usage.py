"""Metering of jobs: what each held, wasted and waited, as a plain walk over the timeline has it; through snapshots."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.usage import NO_MODEL, Used, life_of
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import HoldRequested, ReleaseRequested
from gantree.model.facts import (
    AttemptEnded,
    Fact,
    GangPlaced,
    GangResumed,
    GangSuspended,
    JobAccepted,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
)
from gantree.model.jobs import Checkpoint
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples
from support.random_lives import POLICIES, Lives

H100 = "H100-80GB"
Sums = dict[str, tuple[float, float]]


def sums(used_of: Iterable[tuple[str, Used]]) -> Sums:
    """GPU-seconds held and seconds waited, by name; without those that come to nothing."""
    held: dict[str, float] = defaultdict(float)
    waited: dict[str, float] = defaultdict(float)
    for name, used in used_of:
        held[name] += used.held_gpu_s
        waited[name] += used.waited_s
    return {name: (held[name], waited[name]) for name in held if held[name] or waited[name]}


def total(some: Sums) -> tuple[float, float]:
    return sum(held for held, _ in some.values()), sum(waited for _, waited in some.values())


class Twin:
    """One job of a timeline, walked through second by second where something changes."""

    def __init__(self, fact: JobAccepted) -> None:
        self.user, self.queue = fact.spec.user, fact.spec.queue
        self.since, self.waits, self.is_held = fact.at, True, fact.spec.held
        self.gpus = 0.0
        self.suspended = False
        self.held_gpu_s = self.waited_s = 0.0

    def walk(self, until: float) -> None:
        if self.waits and not self.is_held:
            self.waited_s += until - self.since
        if not self.suspended:
            self.held_gpu_s += self.gpus * (until - self.since)
        self.since = until

    def see(self, fact: Fact, gpus: float) -> None:
        self.walk(fact.at)
        match fact:
            case GangPlaced():
                self.waits, self.suspended, self.gpus = False, False, gpus
            case AttemptEnded():
                self.gpus, self.suspended = 0.0, False
            case GangSuspended() | GangResumed():
                self.suspended = isinstance(fact, GangSuspended)
            case JobRequeued():
                self.waits = True
            case JobHeld() | JobReleased():
                self.is_held = isinstance(fact, JobHeld)
            case JobEnded():
                self.waits = False


def walked(facts: Iterable[Fact], ledger: Ledger, now: float) -> dict[str, Twin]:
    twins: dict[str, Twin] = {}
    for fact in facts:
        name = str(getattr(fact, "job", ""))
        if isinstance(fact, JobAccepted):
            twins[name] = Twin(fact)
        elif name in twins:
            gpus = 0.0
            if isinstance(fact, GangPlaced):
                gpus = ledger.accounts.amounts.held(fact.placement).get("gpus", 0.0)
            twins[name].see(fact, gpus)
    for twin in twins.values():
        twin.walk(now)
    return twins


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["turns", "quotas", "moves"]))
def test_the_account_is_what_a_plain_walk_over_the_timeline_gives(seed: int, name: str) -> None:
    lives = Lives(seed, POLICIES[name])
    for _ in range(60):
        lives.step()
    ledger, now = lives.scheduler.ledger, lives.now + 30.0
    twins = walked(lives.facts, ledger, now)
    again = restored(snapshot_of(lives.scheduler), lives.policy).ledger
    for job_id, state in ledger.jobs.items():
        used_of = life_of(state, now)
        own = total(sums((job_id, used) for used in used_of.values()))
        twin = twins[job_id]
        assert own == pytest.approx((twin.held_gpu_s, twin.waited_s)), job_id
        for used in used_of.values():
            assert used.wasted_gpu_s <= used.held_gpu_s + 1e-6
        assert life_of(again.jobs[job_id], now) == used_of


def test_what_is_held_waited_and_wasted() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    saves = replace(job("a", gpus=8, restarts=1, checkpoint=Checkpoint()), user="ann", queue="q")
    stage.submit(saves, replace(job("b", gpus=8), user="bob", queue="q"))
    stage.started("a")
    stage.now += 60.0
    stage.saved("a", 1)
    stage.now += 140.0
    stage.rank_failed("a")
    stage.ended("a", 1)
    now = stage.now + 10.0
    assert life_of(stage.state("a"), now)[H100] == Used(1600.0, 8 * 140.0)
    assert life_of(stage.state("b"), now) == {NO_MODEL: Used(waited_s=200.0), H100: Used(80.0)}


def test_a_job_that_somebody_holds_back_does_not_wait() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("a", gpus=8), job("b", gpus=8))
    stage.now = 10.0
    stage.tell(HoldRequested, job="b")
    stage.now = 50.0
    stage.tell(ReleaseRequested, job="b")
    (b,) = (used for model, used in life_of(stage.state("b"), 55.0).items() if model == NO_MODEL)
    assert b.waited_s == 15.0
