"""How long a job rests whose attempts are cut short by preemption, one after another: what ends rounds without end.

A gang is only stopped for one that has the right and that stays (`core.rights`, `core.lasting`). Rights may go round
all the same where many jobs meet: guarantees, order and the sizes of gangs are asked of different pairs. Such a round
shows in attempts that are preempted sooner than a new start takes: they are all cost. Two in a row may be chance. From
the third on the job rests for as long as a new start takes, then for twice that, and so on, up to an hour; meanwhile
the others get on. An attempt that lasts, or ends for another cause, ends the count. At home in a cell of its own queue
nobody is preempted, so there a job may begin before it has rested (`waiting.eligible`).
"""

from gantree.core.state import JobState
from gantree.policy.rules import Policy

BY_CHANCE = 2
"""Attempts cut short in a row after which a job does not rest yet."""
SHORTEST_S, MOST_S = 1.0, 3600.0
"""Bounds of a rest, in seconds: the lower one also where a policy says that a new start takes no time."""
MOST_DOUBLINGS = 12
"""The longest rest is reached by then, whatever a new start takes."""


def cut_short(state: JobState, policy: Policy) -> int:
    """Of a job whose attempt was preempted: how many in a row were so too soon, this one included; 0 if it lasted."""
    assert state.placed_at is not None, f"{state.job} has no place"
    lasted_s = state.preempted_at[-1] - state.placed_at
    return state.cut_short + 1 if lasted_s < _new_start_s(policy) else 0


def rest_s(cut_short: int, policy: Policy) -> float:
    """Seconds for which a job rests after so many attempts that were cut short in a row."""
    doublings = cut_short - BY_CHANCE - 1
    if doublings < 0:
        return 0.0
    return float(min(MOST_S, _new_start_s(policy) * 2 ** min(doublings, MOST_DOUBLINGS)))


def _new_start_s(policy: Policy) -> float:
    return max(SHORTEST_S, policy.restart_s)
