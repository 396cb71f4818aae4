"""The loop of Muri's simulator, with its rule of overheads.

At every event (a job comes, ends, or changes its queue) each running job has progressed by what has passed since the
event before, less its start overhead, whether or not it was started anew; never by less than nothing. The job that
ends pays nothing on its last stretch, because its end was foretold without. That is the rule "every event". Under the
rule "start" a job pays when it starts, and again whenever it starts again: it does nothing for that long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, fsum, inf
from typing import Literal

from gantree.sim.muri.orders import ActiveJob, Order
from gantree.sim.muri.trace import MuriJob

Rule = Literal["every event", "start"]


@dataclass(frozen=True, slots=True)
class Replay:
    """What came out: completion times in seconds, in the order of the trace; makespan_s from 0 to the last end."""

    jct_s: tuple[float, ...]
    makespan_s: float
    preemptions: int
    events: int

    @property
    def mean_jct_s(self) -> float:
        """Mean completion time."""
        return fsum(self.jct_s) / len(self.jct_s)

    @property
    def p99_jct_s(self) -> float:
        """The smallest completion time that 99 % do not exceed."""
        return sorted(self.jct_s)[ceil(0.99 * len(self.jct_s)) - 1]


def replay(jobs: Sequence[MuriJob], order: Order, rule: Rule = "every event") -> Replay:
    """Run jobs, which are in the order of arrival, to the last end."""
    run = _Run(jobs, order, rule)
    while run.step():
        pass
    return Replay(
        tuple(run.end_s[job.job_id] - job.arrival_s for job in jobs),
        max(run.end_s.values(), default=0.0),
        run.preemptions,
        run.events,
    )


class _Run:
    def __init__(self, jobs: Sequence[MuriJob], order: Order, rule: Rule) -> None:
        self._jobs, self._order, self._rule = jobs, order, rule
        self._arrived = 0
        self._active: list[ActiveJob] = []
        self._change_s = inf
        self._now = 0.0
        self.end_s: dict[str, float] = {}
        self.preemptions = self.events = 0

    def step(self) -> bool:
        """Go to the next event and choose again; False when all is done."""
        arrival_s = self._jobs[self._arrived].arrival_s if self._arrived < len(self._jobs) else inf
        ends = [
            (self._now + each.starting_s + each.left_s, each) for each in self._active if each.runs
        ]
        end_s = min((at for at, _ in ends), default=inf)
        moment = min(arrival_s, end_s)
        if moment == inf:
            assert not self._active, "the cluster is not large enough for a job"
            return False
        self._now, changed = min(moment, self._change_s), self._change_s < moment
        self.events += 1
        if not changed and end_s == moment:
            self._end([each for at, each in ends if at == end_s])
        if not changed and arrival_s == moment:
            self._arrive()
        self._progress()
        self._choose()
        return True

    def _end(self, ending: Sequence[ActiveJob]) -> None:
        for each in ending:
            self.end_s[each.job.job_id] = self._now
            self._active.remove(each)
            self._order.left(each)

    def _arrive(self) -> None:
        while self._arrived < len(self._jobs):
            job = self._jobs[self._arrived]
            if job.arrival_s != self._now:
                return
            job_run = ActiveJob(job, job.iterations, self._now)
            self._active.append(job_run)
            self._order.came(job_run)
            self._arrived += 1

    def _progress(self) -> None:
        """Bring everybody's work up to now."""
        for each in self._active:
            if each.runs:
                passed_s = self._now - each.looked_at_s
                each.iterations_left -= self._worked_s(each, passed_s) / each.job.iteration_s
                each.held_s += passed_s
            each.looked_at_s = self._now

    def _worked_s(self, each: ActiveJob, passed_s: float) -> float:
        """Seconds of work in what has passed since it was looked at."""
        if self._rule == "every event":
            return max(passed_s - each.job.overhead_s, 0.0)
        started_s = min(each.starting_s, passed_s)
        each.starting_s -= started_s
        return passed_s - started_s

    def _choose(self) -> None:
        chosen = {id(each) for each in self._order.choose()}
        for each in self._active:
            runs = id(each) in chosen
            self.preemptions += each.runs and not runs
            if runs and not each.runs and self._rule == "start":
                each.starting_s = each.job.overhead_s
            each.runs = runs
        self._change_s = self._order.next_change_s(self._now)
