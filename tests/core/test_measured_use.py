"""Useful and idle GPU-seconds: what counters told, held equal to a plain recount of the facts, and never too much."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.usage import DAY_S, life_of, usage_at
from gantree.core.scheduler import Decision
from gantree.model.events import CheckpointSaved, GpuUseObserved
from gantree.model.facts import (
    AttemptEnded,
    CheckpointRecorded,
    Fact,
    GangPlaced,
    GangResumed,
    GangRunning,
    GangSuspended,
    GpuUseNoted,
    JobAccepted,
)
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.jobs import Checkpoint
from gantree.model.phases import HOLDING
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples
from support.random_lives import EVERY_KIND, WAYS, Lives

Amounts = tuple[float, float, float]
"""GPU-seconds useful, idle and wasted."""


class MeasuredLives(Lives):
    """Lives of which somebody tells what GPUs did: rightly, too much, late, of another attempt or of nobody."""

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return [*WAYS.values(), *[MeasuredLives.measure] * 12]

    def measure(self) -> None:
        lots = self.lots
        states = list(self.scheduler.ledger.jobs.values())
        gangs = tuple(
            MeasuredUse(
                state.job,
                state.attempt - lots.choice([0, 0, 0, 0, 1]),
                lots.choice([0.0, 1.0, 15.0, 500.0]),
                lots.choice([0.0, 0.0, 2.0, 40.0]),
            )
            for state in lots.sample(states, min(len(states), 4))
        )
        nobody = MeasuredUse("nobody", 1, 5.0, 5.0)
        since = max(0.0, self.now - 15.0)
        self.tell(GpuUseObserved, since=since, until=self.now, gangs=(*gangs, nobody))


@dataclass
class Recount:
    """One job, recounted fact by fact."""

    user: str
    gpus: float = 0.0
    runs_since: float | None = None
    ran_s: float = 0.0
    noted_gpu_s: float = 0.0
    unsaved: list[MeasuredUse] = field(default_factory=list)
    useful: float = 0.0
    idle: float = 0.0
    wasted: float = 0.0
    suspended: bool = False
    running: bool = False

    def walk(self, until: float) -> None:
        if self.runs_since is not None:
            self.ran_s += until - self.runs_since
            self.runs_since = until

    def see(self, fact: Fact, gpus: float) -> None:
        self.walk(fact.at)
        match fact:
            case GangPlaced():
                self.gpus, self.ran_s, self.noted_gpu_s, self.unsaved = gpus, 0.0, 0.0, []
                self.suspended = self.running = False
            case GangRunning():
                self.running = True
            case GangSuspended() | GangResumed():
                self.suspended = isinstance(fact, GangSuspended)
            case CheckpointRecorded():
                self.unsaved = []
            case AttemptEnded():
                self.end(fact)
        self.runs_since = fact.at if self.running and not self.suspended else None

    def end(self, fact: AttemptEnded) -> None:
        self.running = False
        wasted_s = min(fact.lost_s, self.ran_s)
        self.wasted += wasted_s * self.gpus
        if wasted_s:
            self.useful -= sum(used.useful_gpu_s for used in self.unsaved)
            self.idle -= sum(used.idle_gpu_s for used in self.unsaved)
            self.noted_gpu_s = self.ran_s * self.gpus  # nothing more may be told of it
        self.unsaved = []

    def note(self, used: MeasuredUse, at: float) -> None:
        self.walk(at)
        self.noted_gpu_s += used.gpu_s
        assert self.noted_gpu_s <= self.ran_s * self.gpus + 1e-6, used
        self.useful += used.useful_gpu_s
        self.idle += used.idle_gpu_s
        if self.running:
            self.unsaved.append(used)


def recounted(lives: Lives) -> dict[str, Recount]:
    ledger, recounts = lives.scheduler.ledger, dict[str, Recount]()
    for fact in lives.facts:
        if isinstance(fact, GpuUseNoted):
            for used in fact.gangs:
                recounts[used.job].note(used, fact.at)
        name = str(getattr(fact, "job", ""))
        if isinstance(fact, JobAccepted):
            recounts[name] = Recount(fact.spec.user)
        elif name in recounts:
            gpus = 0.0
            if isinstance(fact, GangPlaced):
                gpus = ledger.accounts.amounts.held(fact.placement).get("gpus", 0.0)
            recounts[name].see(fact, gpus)
    return recounts


def by_user(found: Iterable[tuple[str, Amounts]]) -> dict[str, Amounts]:
    sums: dict[str, Amounts] = defaultdict(lambda: (0.0, 0.0, 0.0))
    for user, amounts in found:
        before = sums[user]
        sums[user] = (before[0] + amounts[0], before[1] + amounts[1], before[2] + amounts[2])
    return {
        user: amounts for user, amounts in sums.items() if any(abs(one) > 1e-9 for one in amounts)
    }


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(EVERY_KIND)))
def test_useful_and_idle_are_what_a_plain_recount_gives(seed: int, name: str) -> None:
    lives = MeasuredLives(seed, EVERY_KIND[name])
    lives.now = DAY_S - 100.0
    for step in range(80):
        lives.step()
        if step == 40:
            lives.twins = [("restored", lives.make_twin()), ("folded", lives.folded())]
    ledger, now = lives.scheduler.ledger, lives.now
    recounts = recounted(lives)
    ours = by_user(
        (account.user, (used.useful_gpu_s, used.idle_gpu_s, used.wasted_gpu_s))
        for account, used in usage_at(ledger, now).items()
    )
    theirs = by_user(
        (each.user, (each.useful, each.idle, each.wasted)) for each in recounts.values()
    )
    assert ours.keys() == theirs.keys()
    for user, amounts in ours.items():
        assert amounts == pytest.approx(theirs[user], abs=1e-6)
    for job_id, state in ledger.jobs.items():
        own = life_of(state, now).values()
        useful = sum(used.useful_gpu_s for used in own)
        held = sum(used.held_gpu_s - used.wasted_gpu_s for used in own)
        assert useful == pytest.approx(recounts[job_id].useful, abs=1e-6)
        assert -1e-6 <= useful <= held + 1e-6
    for twin, scheduler in lives.twins:
        assert usage_at(scheduler.ledger, now) == pytest.approx(usage_at(ledger, now)), twin


# ----- by hand


def stage(restarts: int = 0) -> Stage:
    there = Stage(cluster(spines=1, leaves=1, nodes=1))
    there.submit(job("j", 1, 8, checkpoint=Checkpoint(), restarts=restarts, backoff_s=0.0))
    there.started("j")
    return there


def measured(there: Stage, useful: float, idle: float, attempt: int = 1) -> Decision:
    used = MeasuredUse("j", attempt, useful, idle)
    return there.tell(GpuUseObserved, since=there.now - 10.0, until=there.now, gangs=(used,))


def amounts(there: Stage) -> Amounts:
    found = list(life_of(there.state("j"), there.now).values())
    return (
        sum(used.useful_gpu_s for used in found),
        sum(used.idle_gpu_s for used in found),
        sum(used.wasted_gpu_s for used in found),
    )


def test_what_was_told_twice_counts_once() -> None:
    there = stage()
    there.wait(10.0)
    measured(there, 60.0, 20.0)
    measured(there, 60.0, 20.0)
    assert amounts(there) == (60.0, 20.0, 0.0)


def test_more_than_the_gang_ran_is_cut_in_proportion() -> None:
    there = stage()
    there.wait(10.0)
    measured(there, 120.0, 40.0)
    assert amounts(there) == (60.0, 20.0, 0.0)


def test_work_that_must_be_redone_is_wasted_and_neither_useful_nor_idle() -> None:
    there = stage(restarts=1)
    there.wait(10.0)
    measured(there, 80.0, 0.0)
    there.tell(CheckpointSaved, job="j", attempt=1, step=5)
    there.wait(10.0)
    measured(there, 60.0, 20.0)
    there.ended("j", 1)
    assert amounts(there) == (80.0, 0.0, 80.0)


def test_a_report_that_comes_after_the_end_counts_as_far_as_the_attempt_ran() -> None:
    there = stage()
    there.wait(10.0)
    there.ended("j")
    assert there.state("j").phase not in HOLDING
    there.wait(5.0)
    measured(there, 100.0, 20.0)
    measured(there, 100.0, 20.0)
    useful, idle, wasted = amounts(there)
    assert useful + idle == pytest.approx(80.0)
    assert wasted == 0.0


def test_a_report_on_an_earlier_attempt_or_on_nobody_changes_nothing() -> None:
    there = stage(restarts=1)
    there.wait(10.0)
    there.ended("j", 1)
    there.wait(1.0)
    there.started("j")
    there.wait(10.0)
    assert not measured(there, 80.0, 0.0, attempt=1).facts
    assert amounts(there)[:2] == (0.0, 0.0)
