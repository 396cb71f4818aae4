"""Limits on jobs that wait, by user and by queue, checked when jobs are submitted.

They keep one user from filling the queue that every decision looks at. An array counts as what of it is in the queue at
a time, so 10,000 elements count little. They hold for submissions alone: pods, and jobs of a simulation, are not
submitted. A queue of the policy may have a limit of its own (`most_waiting`), which counts every element.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gantree.core.ledger.ledger import Ledger
from gantree.core.lifecycle.arrays import WINDOW
from gantree.model.arrays import size_of
from gantree.model.errors import Conflict
from gantree.model.jobs import Job


@dataclass(frozen=True, slots=True)
class WaitingLimits:
    """The most jobs that may wait at a time; 0: no limit."""

    per_user: int = 10_000
    per_queue: int = 50_000


DEFAULT_WAITING_LIMITS = WaitingLimits()


class WaitingCounts:
    """Counts the submissions of one batch beside what waits in the ledger."""

    def __init__(self, limits: WaitingLimits, ledger: Ledger) -> None:
        self._limits, self._ledger = limits, ledger
        self._of_user: Counter[str] = Counter()
        self._of_queue: Counter[str] = Counter()

    def add(self, jobs: Sequence[Job]) -> None:
        """Count jobs that are submitted. Raises Conflict where they are too many; then none is counted."""
        users, queues = Counter[str](), Counter[str]()
        for job in jobs:
            counted = min(size_of(job.array), WINDOW) if job.array else 1
            users[job.user] += counted
            queues[job.queue] += counted
        for user, count in users.items():
            waiting = self._ledger.waiting_of_user[user] + self._of_user[user]
            who = f"user {user}" if user else "jobs without a user"
            _check(who, waiting, count, self._limits.per_user, "--user-waiting")
        for queue, count in queues.items():
            waiting = self._waiting_in(queue) + self._of_queue[queue]
            _check(f"queue {queue}", waiting, count, self._limits.per_queue, "--queue-waiting")
        self._of_user += users
        self._of_queue += queues

    def _waiting_in(self, queue: str) -> int:
        ledger = self._ledger
        names = ledger.accounts.tree.queue
        nodes = (node for node in ledger.waiting.queues if names[node] == queue)
        return sum(len(ledger.waiting.in_queue(node)) for node in nodes)


def _check(whose: str, waiting: int, more: int, most: int, option: str) -> None:
    if most and waiting + more > most:
        raise Conflict(
            f"{whose}: {waiting:,} jobs wait, and {more:,} more would be over the limit of {most:,}. Cancel some,"
            f" submit later, or use an array (`array: 0-999`), which counts as at most {WINDOW}. The operator sets"
            f" the limit with `gantree up {option}`"
        )
