"""The back-off of preempted jobs: how long a job waits after preemption cut several attempts short in a row.

A gang is preempted only for a job with the right to do so (`core.queue.preemption_rules`). Even so, jobs can preempt
each other in a cycle, because guarantees, order and sizes are compared between different pairs. The sign of a cycle is
an attempt that ran shorter than a restart takes, stopped for a job that gained nothing by it: that job was preempted in
turn, or lost the room. Two such attempts in a row may be chance. From the third on the job backs off for one restart,
then twice that, and so on up to an hour.

A stop does not count if the job it was for has ended, or has held its place for as long as a restart takes: a job that
yields to a burst of urgent jobs starts again as soon as there is room. An attempt that lasts longer, or ends for
another cause, resets the count. In a cell of its own queue no job is preempted, so there a job need not wait
(`core.queue.eligibility`).
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import ENDED, HOLDING
from gantree.policy.rules import Policy

BY_CHANCE = 2
"""Attempts cut short in a row after which a job does not back off yet."""
SHORTEST_S, MOST_S = 1.0, 3600.0
"""Bounds of a back-off, in seconds: the lower one also if the policy says that a restart takes no time."""
MOST_DOUBLINGS = 12
"""The longest back-off is reached by then, whatever a restart takes."""
MOST_COUNTED = BY_CHANCE + 1 + MOST_DOUBLINGS


def cut_short_for(ledger: Ledger, state: JobState, now: float) -> tuple[str, ...]:
    """Of a preempted job: the jobs for which its attempts in a row were cut short in vain so far.

    The last one preempted this attempt; whether it gains by that is not known yet. Empty if the attempt lasted.
    """
    assert state.placed_at is not None, f"{state.job} has no place"
    if state.preempted_at[-1] - state.placed_at >= _new_start_s(ledger.policy):
        return ()
    before = (job for job in state.cut_short_for if _in_vain(ledger, job, now))
    assert state.preempted_by is not None, f"{state.job}: preempted by nobody"
    return (*before, state.preempted_by)[-MOST_COUNTED:]


def _in_vain(ledger: Ledger, job: str, now: float) -> bool:
    """Whether a job for which another was preempted has neither ended nor held its place for as long as a restart."""
    other = ledger.jobs.get(job)
    if other is None or other.phase in ENDED:
        return False
    if other.phase not in HOLDING:
        return True
    assert other.placed_at is not None
    return now - other.placed_at < _new_start_s(ledger.policy)


def backoff_s(cut_short: int, policy: Policy) -> float:
    """Seconds for which a job backs off after so many attempts in a row that were cut short in vain."""
    doublings = cut_short - BY_CHANCE - 1
    if doublings < 0:
        return 0.0
    return float(min(MOST_S, _new_start_s(policy) * 2 ** min(doublings, MOST_DOUBLINGS)))


def _new_start_s(policy: Policy) -> float:
    return max(SHORTEST_S, policy.restart_s)
