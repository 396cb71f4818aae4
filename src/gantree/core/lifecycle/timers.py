"""Times at which time alone may change a decision: a heap of (when, job), checked lazily.

A timer may be out of date; whoever is woken by it looks at the job and decides. `due_moment` is the one place
that says what a job waits for.
"""

from heapq import heappop, heappush

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.idleness import warned_at
from gantree.model.phases import Phase
from gantree.policy.rules import Policy


def due_moment(state: JobState, policy: Policy) -> float | None:
    """The next moment at which this job needs a decision by time alone, in seconds; None if there is none."""
    if state.phase is Phase.SAVING:
        return state.deadline_at
    if state.phase is Phase.RUNNING:  # suspended time does not count, and its turn will come first
        moments = (
            _limit(state),
            gap_over_at(state),
            warned_at(state, policy),
            _replica_due_at(state),
        )
        return min((moment for moment in moments if moment is not None), default=None)
    if state.phase is Phase.PENDING and state.not_before > 0.0:
        return state.not_before
    return None


def _limit(state: JobState) -> float | None:
    """When a running gang is warned of its time limit, or, once it was, stopped for it."""
    limit_at, warn = state.limit_at, state.spec.warn
    if limit_at is None or warn is None or state.warned:
        return limit_at
    return limit_at - warn.before_s


def _replica_due_at(state: JobState) -> float | None:
    """When a replica has drained for as long as it may, or was not ready in time."""
    replica = state.replica
    return replica.ready_by if replica.drain_ends_at is None else replica.drain_ends_at


def gap_over_at(state: JobState) -> float | None:
    """When a running gang is stopped of which members are missing; None for one that is whole."""
    return min((gap.deadline_at for gap in state.missing), default=None)


class Timers:
    """Pending moments of all jobs. Derived from the ledger, so it can be rebuilt at any time."""

    def __init__(self, ledger: Ledger, now: float) -> None:
        self._ledger = ledger
        self._heap: list[tuple[float, str]] = []
        for state in ledger.jobs.values():
            self.watch(state, now)

    def watch(self, state: JobState, now: float) -> None:
        """Remember the job's next moment, if it has one. A backoff that is over at `now` is no moment any more."""
        moment = due_moment(state, self._ledger.policy)
        if moment is None or (state.phase is Phase.PENDING and moment <= now):
            return
        heappush(self._heap, (moment, state.job))

    def take_due(self, now: float) -> list[JobState]:
        """Remove all moments that have come and give their jobs, each once, in order."""
        due: dict[str, JobState] = {}
        while self._heap and self._heap[0][0] <= now:
            _, job = heappop(self._heap)
            moment = self._moment_of(job)
            if moment is not None and moment <= now:
                due[job] = self._ledger.jobs[job]
        return list(due.values())

    def next_moment(self) -> float | None:
        """The earliest moment that is still true, in seconds; None if there is none."""
        while self._heap:
            moment, job = self._heap[0]
            if self._moment_of(job) == moment:
                return moment
            heappop(self._heap)
        return None

    def _moment_of(self, job: str) -> float | None:
        """What it waits for; None for a job that was forgotten meanwhile, too."""
        state = self._ledger.jobs.get(job)
        return None if state is None else due_moment(state, self._ledger.policy)
