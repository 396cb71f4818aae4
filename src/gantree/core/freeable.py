"""How many GPUs others could give up at most, by the priority that asks: a bound before any plan is made.

Counted anew when somebody has taken a place or begun to leave one. It is never too low: whoever might be told to leave
counts with all it holds, whatever else forbids it.
"""

from bisect import bisect_left
from itertools import accumulate

from gantree.core.ledger import Ledger
from gantree.core.state import JobState
from gantree.policy.order import Line


class Freeable:
    """GPUs of gangs by priority, of gangs that borrow, and of those that leave or hold room for others."""

    def __init__(self) -> None:
        self._versions = (-1, -1)
        self._priorities: list[int] = []
        self._gpus_below: list[int] = [0]
        self._in_any_case = 0
        self._of_others: dict[int, int] = {}
        self._everybody = 0

    def by(self, ledger: Ledger, line: Line) -> int:
        """GPUs that might become free for a line beside what is free now."""
        self._count(ledger)
        rules = ledger.policy.preemption.by
        if rules == "order":
            return self._everybody
        gpus = self._in_any_case + self._borrowed(ledger, line.queue)
        if rules == "priority":
            gpus += self._gpus_below[bisect_left(self._priorities, line.priority)]
        return gpus

    def _count(self, ledger: Ledger) -> None:
        versions = (ledger.room_version, ledger.holders_version)
        if versions == self._versions:
            return
        self._versions = versions
        self._of_others.clear()
        stay = [
            (state.priority, _touched(state))
            for state in ledger.holding.values()
            if not state.leaving and state.spec.preemptible
        ]
        stay.sort()
        self._priorities = [priority for priority, _ in stay]
        self._gpus_below = [0, *accumulate(gpus for _, gpus in stay)]
        owners = ledger.rooms().owners
        held = (owners.get(owner, ()) for owner, _ in ledger.held_places())
        holds = sum(1 + len(member.gpus) for members in held for member in members)
        leaving = sum(_touched(state) for state in ledger.leaving.values())
        elastic = sum(_touched(ledger.jobs[job]) for job in ledger.accounts.elastic)
        self._in_any_case = holds + leaving + elastic
        self._everybody = holds + leaving + self._gpus_below[-1]

    def _borrowed(self, ledger: Ledger, queue: int) -> int:
        """GPUs of gangs that run on what a queue is guaranteed."""
        if not ledger.accounts.may_reclaim(queue):
            return 0
        if queue not in self._of_others:
            borrowers = ledger.accounts.quota.borrowers(queue)
            self._of_others[queue] = sum(_touched(ledger.jobs[owner]) for owner in borrowers)
        return self._of_others[queue]


def _touched(state: JobState) -> int:
    """GPUs that a gang holds, whole or in part; 1 for one that holds none, which may free something else."""
    if state.placement is None:
        return 0
    return max(1, sum(len(member.gpus) + len(member.parts) for member in state.placement.members))
