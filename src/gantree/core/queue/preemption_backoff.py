"""How long a job rests whose attempts are cut short by preemption, one after another: what ends rounds without end.

A gang is only stopped for one that has the right (`core.queue.preemption_rules`). Rights may go round all the same
where many jobs meet: guarantees, order and the sizes of gangs are asked of different pairs. Such a round shows in
attempts that are preempted sooner than a new start takes, for jobs that get nothing from it: they are stopped in turn,
or lose the room to others. Two of these in a row may be chance. From the third on the job rests for as long as a new
start takes, then for twice that, and so on, up to an hour; meanwhile the others get on. A stop for a job that has ended
since, or that has held its place for as long as a new start takes, was not in vain and is counted no more: who yields
to a burst of urgent jobs starts again as soon as there is room. An attempt that lasts, or ends for another cause, ends
the count. At home in a cell of its own queue nobody is preempted, so there a job may begin before it has rested
(`core.queue.eligibility`).
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import ENDED, HOLDING
from gantree.policy.rules import Policy

BY_CHANCE = 2
"""Attempts cut short in a row after which a job does not rest yet."""
SHORTEST_S, MOST_S = 1.0, 3600.0
"""Bounds of a rest, in seconds: the lower one also where a policy says that a new start takes no time."""
MOST_DOUBLINGS = 12
"""The longest rest is reached by then, whatever a new start takes."""
MOST_COUNTED = BY_CHANCE + 1 + MOST_DOUBLINGS


def cut_short_for(ledger: Ledger, state: JobState, now: float) -> tuple[str, ...]:
    """Of a job whose attempt was preempted: the jobs for which it was in vain so far, of attempts cut short in a row.

    The last is who stopped this attempt, of whom is not known yet what it gets from it. None where the attempt lasted.
    """
    assert state.placed_at is not None, f"{state.job} has no place"
    if state.preempted_at[-1] - state.placed_at >= _new_start_s(ledger.policy):
        return ()
    before = (job for job in state.cut_short_for if _in_vain(ledger, job, now))
    assert state.preempted_by is not None, f"{state.job}: preempted by nobody"
    return (*before, state.preempted_by)[-MOST_COUNTED:]


def _in_vain(ledger: Ledger, job: str, now: float) -> bool:
    """Whether one for which another was stopped has neither ended (or is forgotten) nor held its place for long."""
    other = ledger.jobs.get(job)
    if other is None or other.phase in ENDED:
        return False
    if other.phase not in HOLDING:
        return True
    assert other.placed_at is not None
    return now - other.placed_at < _new_start_s(ledger.policy)


def rest_s(cut_short: int, policy: Policy) -> float:
    """Seconds for which a job rests after so many attempts in a row that were cut short in vain."""
    doublings = cut_short - BY_CHANCE - 1
    if doublings < 0:
        return 0.0
    return float(min(MOST_S, _new_start_s(policy) * 2 ** min(doublings, MOST_DOUBLINGS)))


def _new_start_s(policy: Policy) -> float:
    return max(SHORTEST_S, policy.restart_s)
