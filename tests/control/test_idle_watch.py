"""Idle gangs from samples to their end: planted by hand, and in random lives held to what the samples showed."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.control.nodes.gpu_use_watch import MOST_S, GpuUseWatch
from gantree.control.nodes.idle_watch import COMPUTES, NO_RULE, UNMEASURED, IdleWatch
from gantree.core.scheduler import Scheduler
from gantree.model.events import Event, ExtensionRequested, TimePassed
from gantree.model.facts import Fact, GangPlaced, GangRunning
from gantree.model.idle_facts import GangIdlenessNoted, GangIdleWarned, GangReclaimed
from gantree.model.jobs import Shape
from gantree.model.phases import Phase
from gantree.policy.idle import DEFAULT_RULE, IdleRule
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

SAMPLE_S = 15.0
MIN = 60.0
BUSY = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5, "DCGM_FI_PROF_DRAM_ACTIVE": 0.2}
HUNG = {
    "DCGM_FI_DEV_GPU_UTIL": 100.0,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.0,
}
FULL_MEMORY = {**HUNG, "DCGM_FI_DEV_GPU_UTIL": 0.0, "DCGM_FI_DEV_FB_USED": 80_000.0}
Told = Mapping[str, Mapping[int, Mapping[str, float]]]


class Site:
    """Gang j of 16 GPUs on two nodes; samples every 15 seconds, and a timer that rings in time."""

    def __init__(self, rule: IdleRule | None = DEFAULT_RULE, members: int = 2) -> None:
        self.stage = Stage(cluster(leaves=1, nodes=2), Policy(idle=rule))
        self.stage.recovered_every = 50
        self.stage.submit(job("j", members, 8))
        self.stage.started("j")
        self.take_over()

    def take_over(self) -> None:
        """Another daemon leads."""
        self.watch, self.use = IdleWatch(), GpuUseWatch()

    def sample(self, told: Told, minutes: float = SAMPLE_S / MIN) -> None:
        for _ in range(round(minutes * MIN / SAMPLE_S)):
            self.sleep(SAMPLE_S)
            self._sample(told)

    def _sample(self, told: Told) -> None:
        ledger, now = self.stage.scheduler.ledger, self.stage.now
        assert ledger.fabric is not None
        found: list[Event] = []
        found += self.use.events(self.use.judge(told, ledger.fabric, now), ledger, now, 1)
        found += self.watch.events(self.watch.judge(told, ledger.fabric, now), ledger, now, 1)
        for event in found:
            self.stage.handle([event])

    def sleep(self, seconds: float) -> None:
        """Time passes, and timers ring."""
        end = self.stage.now + seconds
        while (moment := self.stage.scheduler.wake_at()) is not None and moment <= end:
            self.stage.now = max(self.stage.now, moment)
            self.stage.tell(TimePassed)
        self.stage.now = end

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.stage.facts if isinstance(fact, kind)]

    def moments(self) -> list[tuple[str, float]]:
        """What was said of the gang, and at which minute."""
        kinds = (GangIdlenessNoted, GangIdleWarned, GangReclaimed)
        return [(type(f).__name__, f.at / MIN) for f in self.stage.facts if isinstance(f, kinds)]


def both(figures: Mapping[str, float]) -> Told:
    return {node: dict.fromkeys(range(8), figures) for node in ("n0", "n1")}


def some(busy: int, rest: Mapping[str, float] = HUNG) -> Told:
    """So many of the 16 GPUs compute."""
    flags = iter([BUSY] * busy + [rest] * (16 - busy))
    return {node: {gpu: next(flags) for gpu in range(8)} for node in ("n0", "n1")}


@pytest.mark.parametrize("idle", [HUNG, FULL_MEMORY], ids=["hung", "full memory"])
def test_a_planted_idle_gang_is_warned_at_10_minutes_and_reclaimed_within_a_sample_of_15(
    idle: Mapping[str, float],
) -> None:
    site = Site()
    site.sample(both(BUSY), 20)
    site.sample(both(idle), 16)
    (noted,), (warned,), (reclaimed,) = map(
        site.of, (GangIdlenessNoted, GangIdleWarned, GangReclaimed)
    )
    assert noted.since == 20 * MIN and 24 * MIN <= noted.at <= 25 * MIN
    assert warned.at == 30 * MIN
    assert 35 * MIN <= reclaimed.at <= 35 * MIN + SAMPLE_S
    assert site.stage.phase("j") is Phase.STOPPING


def test_a_gang_that_never_computed_is_warned_once_its_grace_is_over() -> None:
    site = Site()
    site.sample(both(HUNG), 30)
    assert [fact.at for fact in site.of(GangIdleWarned)] == [20 * MIN]
    assert [fact.at for fact in site.of(GangReclaimed)] == [25 * MIN]


@pytest.mark.parametrize(
    ("samples", "busy", "is_kept"),
    [
        (2, 16, True),  # an evaluation of half a minute every five minutes
        (1, 16, False),  # one sample in twenty
        (20, 1, True),  # one of sixteen GPUs always: 6 % of the time
        (1, 1, False),  # a stray kernel
        (0, 0, False),
    ],
)
def test_two_samples_of_work_in_five_minutes_keep_a_gang(
    samples: int, busy: int, is_kept: bool
) -> None:
    site = Site()
    site.sample(both(BUSY), 10)
    for _ in range(8):
        site.sample(both(HUNG), (20 - samples) / 4)
        site.sample(some(busy), samples / 4)
    assert (site.stage.phase("j") is Phase.RUNNING) is is_kept


@pytest.mark.parametrize("seconds", [15.05, 22.0])
def test_one_sample_of_work_ends_nothing_however_late_it_comes(seconds: float) -> None:
    site = Site()
    site.sample(both(BUSY), 20)
    site.sample(both(HUNG), 8)
    site.sleep(seconds)
    site._sample(both(BUSY))
    assert len(site.of(GangIdlenessNoted)) == 1


def test_a_gang_that_works_is_not_idle_where_the_warning_comes_sooner_than_two_samples() -> None:
    site = Site(IdleRule(warn_s=10.0, reclaim_s=20.0, grace_s=0.0))
    site.sample(both(BUSY), 5)
    assert site.moments() == []
    site.sample(both(HUNG), 2)
    assert len(site.of(GangReclaimed)) == 1


def test_a_gang_that_computes_at_its_moment_is_reclaimed_with_the_next_sample_that_it_does_not() -> (
    None
):
    site = Site()
    site.sample(both(BUSY), 20)
    site.sample(both(HUNG), 15 - SAMPLE_S / MIN)
    site.sample(both(BUSY))
    assert not site.of(GangReclaimed)
    site.sample(both(HUNG))
    assert site.of(GangReclaimed)


def test_work_after_the_warning_ends_it_and_the_clock_starts_anew() -> None:
    site = Site()
    site.sample(both(BUSY), 20)
    site.sample(both(HUNG), 14)
    site.sample(both(BUSY), 1)
    site.sample(both(HUNG), 12)
    noted = [(fact.since, fact.reason) for fact in site.of(GangIdlenessNoted)]
    assert noted == [(20 * MIN, ""), (None, COMPUTES), (35 * MIN, "")]
    assert [fact.at for fact in site.of(GangIdleWarned)] == [30 * MIN, 45 * MIN]
    assert not site.of(GangReclaimed)


@pytest.mark.parametrize("told", [{}, {"n0": dict.fromkeys(range(8), HUNG)}])
def test_a_gang_of_which_a_part_is_not_measured_is_not_idle(told: Told) -> None:
    site = Site()
    site.sample(told, 40)
    assert site.moments() == []
    site.sample(both(HUNG), 14)
    site.sample(told, 40)
    assert [fact.reason for fact in site.of(GangIdlenessNoted)] == ["", UNMEASURED]
    assert not site.of(GangReclaimed)


def test_a_pause_of_a_minute_between_samples_changes_nothing() -> None:
    site = Site()
    site.sample(both(BUSY), 20)
    site.sample(both(HUNG), 8)
    site.sample({}, MOST_S / MIN - SAMPLE_S / MIN)
    site.sample(both(HUNG), 8)
    assert [fact.at for fact in site.of(GangIdleWarned)] == [30 * MIN]
    assert 35 * MIN <= site.of(GangReclaimed)[0].at <= 35 * MIN + SAMPLE_S


@pytest.mark.parametrize(("away_s", "is_kept"), [(20.0, True), (200.0, True), (3600.0, False)])
def test_a_daemon_that_takes_over_keeps_the_clock_unless_nobody_measured_for_long(
    away_s: float, is_kept: bool
) -> None:
    site = Site()
    site.sample(both(BUSY), 20)
    site.sample(both(HUNG), 11)
    site.sleep(away_s)
    site.take_over()
    site.sample(both(HUNG), 5)
    assert bool(site.of(GangReclaimed)) is is_kept
    if is_kept:
        assert 35 * MIN <= site.of(GangReclaimed)[0].at <= 35 * MIN + 2 * SAMPLE_S
    else:
        assert site.of(GangIdlenessNoted)[1].reason == UNMEASURED


def test_a_queue_that_reclaims_nothing_any_more_ends_what_was_idle() -> None:
    site = Site()
    site.sample(both(HUNG), 12)
    stage = site.stage
    stage.scheduler.ledger.policy = stage.scheduler.policy = replace(stage.policy, idle=None)
    stage.policy = stage.scheduler.policy
    stage.recovered_every = 10**9
    site.sample(both(HUNG), 30)
    assert [fact.reason for fact in site.of(GangIdlenessNoted)] == ["", NO_RULE]


def test_gangs_without_gpus_are_not_measured() -> None:
    site = Site(members=1)
    (role,) = job("cpus", 1, 0).roles
    site.stage.submit(replace(job("cpus"), roles=(replace(role, shape=Shape(cpus=1.0)),)))
    site.stage.started("cpus")
    site.sample(both(HUNG), 30)
    assert {fact.job for fact in site.of(GangIdlenessNoted)} == {"j"}


# ----- random samples


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_what_is_reclaimed_was_measured_idle_and_warned_before(seed: int) -> None:
    lots = Random(seed)
    site = Site(IdleRule(grace_s=MIN))
    history: list[tuple[float, int | None]] = []
    exempt_from = lots.choice([1e9, 1e9, 3000.0])
    for _ in range(40):
        busy = lots.choice([0, 0, 0, 0, 1, 16, None])
        for _ in range(lots.randint(1, 30)):
            site.sleep(SAMPLE_S * lots.choice([1, 1, 1, 1, 3, 6]))
            if site.stage.phase("j") is Phase.STOPPING:
                site.stage.ended("j", 143)
            elif site.stage.phase("j") is Phase.STARTING:
                site.stage.started("j")
            if site.stage.now >= exempt_from and not site.stage.state("j").idle.exempt:
                site.stage.tell(ExtensionRequested, job="j", until=None)
            history.append((site.stage.now, busy))
            site._sample({} if busy is None else some(busy))
        if lots.random() < 0.1:
            site.take_over()
    for fact in site.of(GangReclaimed):
        _check_reclaimed(site.stage.facts, fact, history)
        assert fact.at < exempt_from


def _check_reclaimed(
    facts: list[Fact], fact: GangReclaimed, history: list[tuple[float, int | None]]
) -> None:
    before = facts[: facts.index(fact)]
    warned = [each for each in before if isinstance(each, GangIdleWarned | GangPlaced)][-1]
    started = [each for each in before if isinstance(each, GangRunning)][-1]
    assert isinstance(warned, GangIdleWarned) and fact.at - warned.at >= 5 * MIN
    assert fact.at - max(fact.since, started.at + MIN) >= 15 * MIN
    told = [each for each in history if fact.since < each[0] <= fact.at]
    busy = [moment for moment, gpus in told if gpus == 16]
    assert all(later - moment > 100.0 for moment, later in pairwise(busy))
    assert told[-1] == (fact.at, 0)


def test_the_scheduler_goes_on_without_the_watch() -> None:
    """Folding the facts gives the same clock (`Stage` checks it at each recovery)."""
    site = Site()
    site.sample(both(BUSY), 15)
    site.sample(both(HUNG), 12)
    recovered = Scheduler(site.stage.policy)
    recovered.recover(site.stage.facts)
    assert recovered.ledger.jobs["j"].idle == site.stage.state("j").idle
    assert recovered.ledger.jobs["j"].idle.warned_at == 25 * MIN
