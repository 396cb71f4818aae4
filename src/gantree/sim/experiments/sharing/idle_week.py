"""Days of jobs with periods in which their GPUs do not compute, under the rule that reclaims idle gangs.

The decisions are those of the scheduler; only the watch over counters is replayed: what it would tell of each period,
and when (`control.nodes.idle_watch`). The time of a job in the trace is work and idle periods together. An idle period
ends at its own time, whether the gang holds its GPUs or not: one that starts again before idles on until then.
"""

from dataclasses import dataclass, field, replace
from random import Random

from gantree.core.ledger.state import JobState
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.events import GangIdlenessObserved
from gantree.model.phases import Phase
from gantree.policy.idle import IdleRule, IdleTerms, terms_of
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import mean
from gantree.sim.experiments.week import site, week
from gantree.sim.results import Result
from gantree.sim.run import Simulation
from gantree.sim.workload import job_id, job_of

SHORT_S, LONG_S = 6 * 3600.0, 24 * 3600.0
"""Jobs under and over these run times have a published share of idle time; between them it is interpolated."""
SAVES_EVERY_S = 1800.0
WITHOUT_LIMIT = 1_000_000
"""Of reclaims: nobody is there to release a held job."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is drawn and under which rule: idle shares of short and of long jobs, mean length of idle periods.

    reclaim_s None: nothing is reclaimed. restart_s is what each start costs. Times in seconds. days are those of the
    trace from its start.
    """

    seed: int
    period_s: float
    reclaim_s: float | None
    idle_short: float
    idle_long: float
    restart_s: float
    sample_s: float
    days: float


@dataclass(frozen=True, slots=True)
class Period:
    """An idle period of a job: it begins after so many seconds of its run, and lasts so long."""

    start_s: float
    length_s: float

    @property
    def end_s(self) -> float:
        """Where it ends in the job's run."""
        return self.start_s + self.length_s


def idle_share(duration_s: float, short: float, long: float) -> float:
    """Return the share of a job's time that is idle, by its run time."""
    part = (duration_s - SHORT_S) / (LONG_S - SHORT_S)
    return short + (long - short) * min(1.0, max(0.0, part))


def idle_periods(
    duration_s: float, share: float, period_s: float, lots: Random
) -> tuple[Period, ...]:
    """Draw the idle periods of a job: idle and busy in turn, of exponential lengths, with this share of idle time."""
    busy_s = period_s * (1 - share) / share
    found, now, is_idle = list[Period](), 0.0, lots.random() < share
    while now < duration_s:
        length_s = lots.expovariate(1 / (period_s if is_idle else busy_s))
        if is_idle:
            found.append(Period(now, min(length_s, duration_s - now)))
        now, is_idle = now + length_s, not is_idle
    return tuple(found)


def rule_of(case: Case) -> IdleRule | None:
    """Return the rule of a case: warned after two thirds of the time, as by default."""
    if case.reclaim_s is None:
        return None
    return IdleRule(warn_s=case.reclaim_s * 2 / 3, reclaim_s=case.reclaim_s, times=WITHOUT_LIMIT)


def rows_of(days: float) -> tuple[TraceJob, ...]:
    """Return the jobs that are submitted in the first days of the week; all of them save."""
    jobs = week()
    until_s = min(row.submit_s for row in jobs) + days * 86_400
    return tuple(replace(row, checkpoint_s=SAVES_EVERY_S) for row in jobs if row.submit_s < until_s)


@dataclass(slots=True)
class IdleWeek:
    """One run. The idle periods of each job are as far as they are still to come, ends_at when its present one ends."""

    case: Case
    idle_gpu_s: float = 0.0
    _periods: dict[str, tuple[Period, ...]] = field(default_factory=dict)
    _begun: dict[str, int] = field(default_factory=dict)
    _ends_at: dict[str, dict[float, float]] = field(default_factory=dict)

    def run(self) -> Result:
        """Run the week to its end."""
        case, lots = self.case, Random(self.case.seed)  # noqa: S311 - a draw of a simulation, not a secret
        rows = rows_of(case.days)
        for row in rows:
            share = idle_share(row.duration_s, case.idle_short, case.idle_long)
            self._periods[job_id(row)] = idle_periods(row.duration_s, share, case.period_s, lots)
            self.idle_gpu_s += _gpus(row) * sum(one.length_s for one in self._periods[job_id(row)])
        policy = replace(PRESETS["gantree"], idle=rule_of(case))
        simulation = Simulation(site(), rows, policy, Overheads(start_s=case.restart_s), job_of)
        while simulation.step():
            for job, state in simulation.scheduler.ledger.holding.items():
                if state.phase is Phase.RUNNING and self._begun.get(job) != state.attempt:
                    self._begun[job] = state.attempt
                    self._begins(simulation, state)
        return simulation.result()

    def _begins(self, simulation: Simulation, state: JobState) -> None:
        """An attempt runs: what is left of its idle periods, and what the watch will tell of them."""
        work = simulation.cluster.work_of_job[state.job]
        assert work.attempt is not None and state.running_at is not None
        kept_s, now = work.attempt.kept_before_s, state.running_at
        periods = [one for one in self._periods[state.job] if one.end_s > kept_s]
        if periods and periods[0].start_s < kept_s:
            periods = self._resumed(simulation, state, periods, kept_s)
        self._periods[state.job] = tuple(periods)
        self._ends_at[state.job] = {one.end_s: now + one.end_s - kept_s for one in periods}
        rule = rule_of(self.case)
        terms = None if rule is None else terms_of(rule, state.spec)
        for period in periods if terms is not None else ():
            assert terms is not None
            since = now + max(0.0, period.start_s - kept_s)
            if self._foretell(simulation, state, terms, since, now + period.end_s - kept_s):
                break

    def _resumed(
        self, simulation: Simulation, state: JobState, periods: list[Period], kept_s: float
    ) -> list[Period]:
        """The periods of a job that was stopped within the first of them: that ends when it would have."""
        first, *later = periods
        assert state.running_at is not None
        left_s = max(0.0, self._ends_at[state.job][first.end_s] - state.running_at)
        shift_s = kept_s + left_s - first.end_s
        work = simulation.cluster.work_of_job[state.job]
        simulation.cluster.change_work(state.job, work.duration_s + shift_s)
        moved = [Period(one.start_s + shift_s, one.length_s) for one in later]
        return [Period(kept_s, left_s), *moved] if left_s else moved

    def _foretell(
        self, simulation: Simulation, state: JobState, terms: IdleTerms, since: float, until: float
    ) -> bool:
        """What the watch tells of a period: that it began, that it goes on when its time has come, and its end.

        Returns whether it lasts until then, and so ends the attempt.
        """
        assert state.running_at is not None
        sample_s = self.case.sample_s
        due = max(since, state.running_at + terms.grace_s) + terms.reclaim_s + sample_s
        told: list[tuple[float, float | None]] = [
            (moment, since) for moment in (since + terms.window_s + sample_s, due) if moment < until
        ]
        if told:
            told.append((until + 2 * sample_s, None))
        for moment, idle_since in told:
            simulation.foretell(
                GangIdlenessObserved(
                    id=f"idle/{state.job}/{state.attempt}/{moment!r}",
                    observed_at=moment,
                    job=state.job,
                    attempt=state.attempt,
                    since=idle_since,
                    reason="" if idle_since else "its GPUs compute",
                )
            )
        return due < until


def _gpus(row: TraceJob) -> int:
    return row.members * row.gpus_per_member


@dataclass(frozen=True, slots=True)
class Fared:
    """How it went: GPU-hours that were held, mean hours from submission to the end, and how many gangs were reclaimed.

    idle_gpu_h are the GPU-hours in which gangs are idle if nothing is reclaimed.
    """

    held_gpu_h: float
    idle_gpu_h: float
    jct_h: float
    reclaims: float


def run_case(case: Case) -> Fared:
    """Run the days of a case to the end of their last job."""
    idle_week = IdleWeek(case)
    result = idle_week.run()
    assert all(row.finished for row in result.jobs), "a job did not end"
    return Fared(
        result.held_gpu_s / 3600,
        idle_week.idle_gpu_s / 3600,
        mean([row.jct_s or 0.0 for row in result.jobs]) / 3600,
        sum(row.attempts - 1 - row.preemptions for row in result.jobs),
    )
