"""The back-off of jobs that preempt: how long a job waits until it may preempt by priority or order again.

A gang is preempted only for a job with the right to do so (`core.queue.preemption_rules`). Even so, jobs can preempt
each other in a cycle, because guarantees, order and sizes are compared between different pairs. Reclaims alone end:
each replaces borrowed room by guaranteed room. So a cycle needs preemption by priority or order again and again, and
each job does that less and less often: three times at any moment, the fourth time no sooner than a restart takes after
the third, then twice that, four times, and so on without limit. In a cycle of any period their number grows with the
logarithm of time.

A job that backs off still starts on free room. A job within its queue's guarantee does not back off, and what it stops
does not count; nor does a gang that is placed in its cells. Where every GPU-second counts ("attained" without levels),
jobs take turns, and the cost of a restart bounds how often.

The count ends with what no cycle can cause (`core.ledger.apply.preempting_claims`): the job failed, lost a node, was
drained or suspended, or outlived the job that preempted it. Without that, a large gang that loses a node every few
hours could not preempt any gang after some days.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState

AT_ANY_TIME = 3
"""Preemptions by one job before it backs off."""
SHORTEST_S = 1.0
"""The shortest back-off, in seconds, also if the policy says that a restart takes no time."""
BACK_OFF = "back-off"
"""The blocker of gangs that a job may stop once its back-off ends."""


def backs_off_until(ledger: Ledger, state: JobState) -> float:
    """The moment, in seconds, from which a job may preempt by priority or order; 0 for any moment."""
    doublings = state.preempting_claims - AT_ANY_TIME
    if doublings < 0 or ledger.policy.falls_ever_back:
        return 0.0
    return state.preempting_claim_at + max(SHORTEST_S, ledger.policy.restart_s) * 2.0**doublings
