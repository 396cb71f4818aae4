"""The jobs that wait, as arrays with a row for each: what the coarse tests of a pass compare at once.

Ten thousand jobs wait; a pass asks a few dozen. Which, arrays say in some hundred microseconds:

    rows        one a job, queue by queue, in each in the order of the policy (`policy.order.Columns`, which the ledger
                keeps as jobs come and go, put end to end)
    signatures  jobs that ask for the same share a number; what depends on that alone is worked out once a signature and
                looked up by row: the slots that a gang needs and of what (`core.queue.needs`), whether the
                empty fabric holds it (`core.queue.heads`), whether it may find a place (`core.queue.start_test`)
    heads       the first `depth` of a queue that wait for nothing but room and may ever have it

Python looks only at the rows that no test rules out. A test rules out only jobs that a search would refuse.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import eligible
from gantree.model.phases import Phase
from gantree.policy.waiting_jobs import QueueEntry, WaitingJobs
from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The jobs that wait in some queues, when a pass begins. Arrays by row, but for first_row[queue index], which has
    one number more than there are queues.
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
        """All that wait in these queues."""
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
        """The row of a job that waited when the pass began."""
        assert state.equivalence_class is not None, f"{state.job} does not wait"
        first = self.queues.index(state.queue)
        entry = QueueEntry(state.position, state.equivalence_class)
        return bisect_left(
            self.entry, entry, int(self.first_row[first]), int(self.first_row[first + 1])
        )

    def kinds(self, row: IntArray, owed: BoolArray) -> tuple[IntArray, IntArray]:
        """Rows that are alike in queue, priority and in whether they might be owed what they ask for.

        Returns the first row of each kind, which has the most rights of it, and the kind of each of the rows.
        """
        priorities, priority_index = np.unique(self.priority[row], return_inverse=True)
        kind = (self.queue_index[row] * len(priorities) + priority_index) * 2 + owed
        _, first, kind_of_row = np.unique(kind, return_index=True, return_inverse=True)
        return row[first], kind_of_row

    def first_of_each(self, eligible_row: BoolArray, depth: int) -> BoolArray:
        """Mask of the first so many eligible rows of each queue."""
        count = np.cumsum(eligible_row)
        before_queue = np.concatenate([[0], count])[self.first_row[:-1]]
        first: BoolArray = eligible_row & (count - before_queue[self.queue_index] <= depth)
        return first


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def ineligible_rows(ledger: Ledger, rows: WaitingRows, now: float) -> list[int]:
    """Rows of the jobs that wait for something other than their turn and room."""
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
    """Rows of the jobs that wait and have claimed room."""
    return [
        rows.row_of(state)
        for state in map(ledger.jobs.__getitem__, ledger.claims)
        if state.phase is Phase.PENDING and state.queue in rows.queues
    ]


def first_of_signature(ledger: Ledger, signature: int) -> JobState:
    """A job that waits and asks for what a signature stands for."""
    eq_class = next(iter(ledger.waiting.classes_of_signature(signature)))
    return ledger.jobs[ledger.waiting[eq_class][0].job]
