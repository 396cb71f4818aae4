"""What one turn adds to the history; it is recorded in the transaction of the turn."""

from dataclasses import dataclass

from gantree.accounting.ended_jobs import EndedJob


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """ended are the jobs that the turn ended, each with the index of its fact among those of the turn."""

    ended: tuple[tuple[int, EndedJob], ...] = ()


NO_CHANGE = HistoryChange()
