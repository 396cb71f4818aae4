"""What one turn adds to the history; it is recorded in the transaction of the turn."""

from dataclasses import dataclass

from gantree.accounting.ended_jobs import EndedJob
from gantree.accounting.usage import UsageChange

REBUILT_WHOLE = 500_000
"""The history of a journal with more facts than these is not made anew from the first: it takes over half a minute."""


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """ended are the jobs that the turn ended, each with the index of its fact among those of the turn.

    told_late are (job, useful, idle): the GPU-seconds of ended jobs of which counters told once more.
    """

    ended: tuple[tuple[int, EndedJob], ...] = ()
    usage: UsageChange | None = None
    told_late: tuple[tuple[str, float, float], ...] = ()


NO_CHANGE = HistoryChange()
