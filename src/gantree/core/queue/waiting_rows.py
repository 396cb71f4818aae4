"""The pending jobs as arrays with a row for each, for the bounds by which a pass skips most of them.

    rows        jobs, queue by queue, in each queue in policy order (`policy.order.Columns`, concatenated; the ledger
                updates them as jobs come and go)
    signatures  numbers of requests: jobs with the same request share one. What depends on the request only is computed
                once for each signature: its slot demand (`core.queue.slot_demands`), whether the empty fabric holds it
                (`core.queue.heads`)
    kinds       rows that are alike in queue, priority and guarantee
    heads       the first `depth` jobs of each queue that wait for room only and fit the empty fabric

A pass considers one by one only the jobs whose rows no bound excludes. A bound excludes only jobs that the exact search
would refuse.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import eligible, equivalence_class_of
from gantree.model.phases import Phase
from gantree.policy.waiting_jobs import QueueEntry, WaitingJobs
from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The pending jobs of some queues when a pass begins, as arrays by row.

    first_row is by queue index, with the number of rows as its last entry.
    """

    queues: tuple[int, ...]
    entry: tuple[QueueEntry, ...]
    first_row: IntArray
    queue_index: IntArray
    signature: IntArray
    priority: IntArray
    span_s: FloatArray
    enforced: BoolArray
    preemptible: BoolArray

    @classmethod
    def of(cls, waiting: WaitingJobs, queues: Iterable[int]) -> "WaitingRows":
        """The pending jobs of these queues."""
        queues = tuple(queues)
        columns = [waiting.columns_of(queue) for queue in queues]
        counts = np.array([len(each.signature) for each in columns], dtype=np.int64)
        return cls(
            queues,
            tuple(chain.from_iterable(map(waiting.in_queue, queues))),
            np.concatenate([[0], np.cumsum(counts)]),
            np.repeat(np.arange(len(queues)), counts),
            _joined([np.frombuffer(each.signature, dtype=np.int64) for each in columns]),
            _joined([np.frombuffer(each.priority, dtype=np.int64) for each in columns]),
            _joined([np.frombuffer(each.span_s, dtype=np.float64) for each in columns]),
            _joined([np.frombuffer(each.enforced, dtype=np.bool_) for each in columns]),
            _joined([np.frombuffer(each.preemptible, dtype=np.bool_) for each in columns]),
        )

    def row_of(self, state: JobState) -> int:
        """The row of a job that was pending when the pass began."""
        first = self.queues.index(state.queue)
        entry = QueueEntry(state.position, equivalence_class_of(state))
        return bisect_left(
            self.entry, entry, int(self.first_row[first]), int(self.first_row[first + 1])
        )

    def kinds(self, row: IntArray, guaranteed: BoolArray) -> tuple[IntArray, IntArray]:
        """Group rows by queue, priority and `guaranteed`, whether the job may be within its guarantee.

        Returns the first row of each kind, which outranks the others of it, and the kind of each of the rows.
        """
        priorities, priority_index = np.unique(self.priority[row], return_inverse=True)
        kind = (self.queue_index[row] * len(priorities) + priority_index) * 2 + guaranteed
        _, first, kind_of_row = np.unique(kind, return_index=True, return_inverse=True)
        return row[first], kind_of_row

    def first_of_each(self, eligible_row: BoolArray, depth: int) -> BoolArray:
        """A mask of the first `depth` eligible rows of each queue."""
        count = np.cumsum(eligible_row)
        before_queue = np.concatenate([[0], count])[self.first_row[:-1]]
        first: BoolArray = eligible_row & (count - before_queue[self.queue_index] <= depth)
        return first


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def ineligible_rows(ledger: Ledger, rows: WaitingRows, now: float) -> list[int]:
    """The rows of jobs that are not eligible."""
    queues, found = frozenset(rows.queues), []
    for job in dict.fromkeys((*ledger.claims, *ledger.resting, *ledger.gated)):
        state = ledger.jobs[job]
        if (
            state.phase is not Phase.PENDING
            or state.queue not in queues
            or state.equivalence_class is None
        ):
            continue
        if not eligible(ledger, state, now):
            found.append(rows.row_of(state))
    return found


def claimant_rows(ledger: Ledger, rows: WaitingRows) -> list[int]:
    """The rows of pending jobs with a claim."""
    return [
        rows.row_of(state)
        for state in map(ledger.jobs.__getitem__, ledger.claims)
        if state.phase is Phase.PENDING and state.queue in rows.queues
    ]


def first_of_signature(ledger: Ledger, signature: int) -> JobState:
    """A pending job with a signature."""
    eq_class = next(iter(ledger.waiting.classes_of_signature(signature)))
    return ledger.jobs[ledger.waiting[eq_class][0].job]
