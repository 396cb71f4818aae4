"""Whole lives on a stage: gangs that start, run for as long as they are written to, and leave when they are told.

    life = Life(cluster(leaves=2), Policy())
    life.submit(job("a", gpus=8), runs_s=3_600)
    life.until(86_400)

Nothing is random here: what runs how long, and how long it takes to leave, is said when a job is handed in. `quiet`
lets nothing happen but the ends of what was told to stop, so what goes on then goes on by decisions alone.
"""

from math import inf

from gantree.core.ledger.state import JobState
from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.stage import Stage


class Life:
    """A stage whose cluster lives: one event at a time, each at its moment."""

    def __init__(self, cluster: Cluster, policy: Policy | None = None) -> None:
        self.stage = Stage(cluster, policy)
        self._runs_s: dict[str, float] = {}
        self._leaves_s: dict[str, float] = {}

    @property
    def now(self) -> float:
        """The moment, in seconds."""
        return self.stage.now

    @property
    def jobs(self) -> dict[str, JobState]:
        """All jobs by id, as the ledger knows them."""
        return self.stage.scheduler.ledger.jobs

    def submit(self, *jobs: Job, runs_s: float = inf, leaves_s: float = 0.0) -> None:
        """Hand in jobs that run for runs_s, each attempt from its beginning, and are gone leaves_s after a stop."""
        for job in jobs:
            self._runs_s[job.name], self._leaves_s[job.name] = runs_s, leaves_s
        self.stage.submit(*jobs)
        self._start_all()

    def until(self, moment: float, most_events: int = 10_000) -> None:
        """Let everything happen that is due by a moment, in seconds, and let that moment come."""
        for _ in range(most_events):
            at, job = self._next()
            wake_at = self.stage.scheduler.wake_at()
            if min(at, inf if wake_at is None else wake_at) > moment:
                self._pass_to(moment)
                return
            if wake_at is not None and wake_at < at:
                self._pass_to(wake_at)
            else:
                self._end(at, job)
        raise AssertionError(f"no end after {most_events} events, at {self.now} s")

    def pause(self, seconds: float) -> None:
        """Let time pass in which nothing ends, and what is placed starts."""
        self._pass_to(self.now + seconds)

    def quiet(self, most_events: int = 100) -> int:
        """Let only those end who are told to stop, without any time; returns how many did."""
        for ended in range(most_events):
            leaving = [state for state in self.jobs.values() if state.leaving]
            if not leaving:
                return ended
            self._end(self.now, leaving[0].job)
        raise AssertionError(f"told to stop again and again: no rest after {most_events} ends")

    def _next(self) -> tuple[float, str]:
        """The first gang to end, and when; at infinity if none does."""
        holding = self.stage.scheduler.ledger.holding.values()
        return min(((self._end_of(state), state.job) for state in holding), default=(inf, ""))

    def _end_of(self, state: JobState) -> float:
        """When the attempt is gone, in seconds."""
        if state.phase is Phase.STOPPING:
            assert state.stop_decided_at is not None
            return state.stop_decided_at + self._leaves_s[state.job]
        if state.running_at is None:
            return inf
        return state.running_at + self._runs_s[state.job]

    def _end(self, at: float, job: str) -> None:
        """A gang is gone: with 0 if by itself."""
        self.stage.now = max(self.now, at)
        state = self.jobs[job]
        told = state.leaving
        if state.phase is Phase.SAVING:
            self.stage.saved(job, state.attempt)
        self.stage.ended(job, 143 if told else 0)
        self._start_all()

    def _pass_to(self, moment: float) -> None:
        """Time passes."""
        self.stage.wait(max(0.0, moment - self.now))
        self._start_all()

    def _start_all(self) -> None:
        """Whatever was placed is started at once."""
        while True:
            holding = self.stage.scheduler.ledger.holding.values()
            starting = [state.job for state in holding if state.phase is Phase.STARTING]
            if not starting:
                return
            self.stage.started(*starting)
