"""Gangs that are told to leave and wait again as soon as they have left: each as it will stand in line then."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gantree.core.ledger.apply_ends import count_run
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import GOES_ON
from gantree.core.queue.preemption_backoff import cut_short_for, rest_s
from gantree.model.phases import Phase, StopCause
from gantree.policy.order import Position


def coming_back(
    ledger: Ledger, gangs: Iterable[str], by: str, now: float, of: Callable[[JobState], bool]
) -> Iterator[JobState]:
    """Those of some gangs of this kind that will wait again, for nothing but their turn and room, were they gone now.

    Who has not been told to leave is taken to be stopped for a job, by. Who moves has a place already.
    """
    for owner in gangs:
        state = ledger.jobs[owner]
        if state.held or state.moving is not None or not of(state):
            continue
        gone = state if state.leaving else _stopped(state, by, now)
        if gone.stop_cause in GOES_ON and not _rests(ledger, gone, now):
            yield _in_line(ledger, gone, now)


def _stopped(state: JobState, by: str, now: float) -> JobState:
    """A gang, had it been told now to leave for a job."""
    preempted_at = (*state.preempted_at, now)
    cause = StopCause.PREEMPTED
    return replace(state, preempted_at=preempted_at, preempted_by=by, stop_cause=cause)


def _rests(ledger: Ledger, state: JobState, now: float) -> bool:
    """Whether a gang will rest from being cut short once it has left."""
    if state.stop_cause is not StopCause.PREEMPTED:
        return False
    return rest_s(len(cut_short_for(ledger, state, now)), ledger.policy) > 0.0


def _in_line(ledger: Ledger, state: JobState, now: float) -> JobState:
    """A gang as it will wait, had it left now."""
    later, accounts = replace(state), ledger.accounts
    count_run(later, now, state.gpu_s_at_stake(now))
    later.phase, later.placement, later.at_home = Phase.PENDING, None, False
    later.running_at, later.suspended = None, False
    later.line = accounts.line_of(later)
    later.position = Position(accounts.order.key(later.merits(now)), later.seq, later.job)
    return later
