"""The rows that a pass visits: pending jobs that may fit, or may preempt, after what the pass has decided so far.

Within a pass free room and quota only shrink, so an excluded row stays excluded. After each decision all remaining rows
are tested again for a start (`StartingRows`), and for preemption those of a kind when the walk comes to one of them
(`PreemptingRows`).
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.preemptible_capacity import PreemptibleCapacity
from gantree.core.queue.quota_test import QuotaTest
from gantree.core.queue.slot_demands import SlotDemandTable
from gantree.core.queue.start_test import StartTest
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.model.phases import Phase
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.topology.fabric.fabric import BoolArray, IntArray


class RowsToVisit:
    """Selects rows by masks.

    heads: jobs that may preempt. advanced: those that have just moved forward. guaranteed: jobs that may be within
    their guarantee.
    """

    def __init__(
        self,
        ledger: Ledger,
        rows: WaitingRows,
        heads: BoolArray,
        advanced: BoolArray,
        guaranteed: BoolArray,
        starting: "StartingRows",
        preempting: "PreemptingRows",
        quotas: QuotaTest | None,
    ) -> None:
        self._ledger, self._rows, self._guaranteed = ledger, rows, guaranteed
        self._all_heads, self._advanced, self._quotas = heads, advanced, quotas
        self._starting, self._preempting = starting, preempting

    @cached_property
    def _heads(self) -> BoolArray:
        """A mask by row: heads that may get a reservation."""
        if self._quotas is None:
            return self._all_heads
        rows = self._rows
        may_wait = self._quotas.may_wait_for_capacity(rows.queue_index, rows.signature)
        return self._all_heads & may_wait

    def queues_with_rows(self, *, guaranteed_only: bool, with_heads: bool) -> BoolArray:
        """A mask by queue index: the queues with a row to visit."""
        self._starting.refresh()
        visited = self._starting.may | self._preempting.may | self._advanced
        if with_heads:
            visited |= self._heads
        if guaranteed_only:
            visited &= self._guaranteed
        found: BoolArray = np.logical_or.reduceat(visited, self._rows.first_row[:-1])
        return found

    def visits(
        self, index: int, *, guaranteed_only: bool, with_heads: Callable[[], bool]
    ) -> Iterator[QueueEntry]:
        """The rows of a queue to visit, in order, as the walk goes on.

        guaranteed_only: those that may be within their guarantee. with_heads: whether all heads are visited at the
        moment.
        """
        row, end = int(self._rows.first_row[index]), int(self._rows.first_row[index + 1])
        while (
            row := self._next(row, end, guaranteed_only=guaranteed_only, with_heads=with_heads())
        ) < end:
            entry = self._rows.entry[row]
            if self._ledger.jobs[entry.position.job].phase is Phase.PENDING:
                yield entry
            row += 1

    def _next(self, row: int, end: int, *, guaranteed_only: bool, with_heads: bool) -> int:
        """The first row to visit at or after one; the end, if there is none."""
        self._starting.refresh()
        while row < end:
            part = slice(row, end)
            certain = self._starting.may[part] | self._advanced[part]
            if with_heads:
                certain = certain | self._heads[part]
            visited = certain | self._preempting.may[part]
            if guaranteed_only:
                visited &= self._guaranteed[part]
            ahead = int(visited.argmax())
            if not visited[ahead]:
                return end
            row += ahead
            if certain[ahead] or self._preempting.still_may(row):
                return row
        return end


class StartingRows:
    """The jobs that may fit: `may`, a mask by row."""

    def __init__(
        self,
        ledger: Ledger,
        rows: WaitingRows,
        guaranteed: BoolArray,
        starts: StartTest,
        quotas: QuotaTest | None,
    ) -> None:
        self._ledger, self._rows, self._guaranteed = ledger, rows, guaranteed
        self._starts, self._quotas = starts, quotas
        self.may = np.ones(len(rows.entry), dtype=np.bool_)
        self._masks = starts.no_masks(len(rows.entry))
        self._reservations: object = None
        self._tested_at = -1

    def refresh(self) -> None:
        """Test the remaining rows again, if a fact has been applied since the last test."""
        if self._tested_at == self._ledger.applied:
            return
        self._tested_at = self._ledger.applied
        reservations = tuple(self._ledger.reservations.items())
        if reservations != self._reservations:
            self._reservations = reservations
            self._masks[:] = (1 << len(reservations)) - 1
            left = self._test()
            self._masks[left] = self._starts.reservation_masks(self._rows, left, self._guaranteed)
        self._test()

    def _test(self) -> IntArray:
        """Test the remaining rows, and return those that still remain."""
        row = np.flatnonzero(self.may)
        signature = self._rows.signature[row]
        may = self._starts.rows_that_may_start(signature, self._masks[row])
        left = row[may]
        if self._quotas is not None and len(left):
            queue_index = self._rows.queue_index[left]
            may[may] = self._quotas.may_start(queue_index, self._rows.signature[left])
        self.may[row[~may]] = False
        return row[may]

    def exclude_signature(self, signature: int, mask: int) -> None:
        """Exclude a signature that did not fit with the reservations of a mask, for all jobs that may use no others."""
        self.may[(self._rows.signature == signature) & (self._masks & ~mask == 0)] = False

    def exclude_class(self, index: int, eq_class: EquivalenceClass) -> None:
        """Exclude the jobs that their queue refuses like one of an equivalence class.

        These have the same queue, signature, priority and preemptibility.
        """
        part = slice(int(self._rows.first_row[index]), int(self._rows.first_row[index + 1]))
        alike = self._rows.signature[part] == eq_class.signature
        alike &= self._rows.priority[part] == eq_class.priority
        alike &= self._rows.preemptible[part] == eq_class.preemptible
        self.may[part][alike] = False


class PreemptingRows:
    """The heads that may fit if all gangs left that they could ever stop: `may`, a mask by row.

    All heads of a kind (`WaitingRows.kinds`) may stop at most what the first of them may.
    """

    def __init__(
        self,
        ledger: Ledger,
        rows: WaitingRows,
        heads: BoolArray,
        guaranteed: BoolArray,
        capacity: PreemptibleCapacity,
        demands: SlotDemandTable,
        quotas: QuotaTest | None,
    ) -> None:
        self._ledger, self._rows, self._guaranteed = ledger, rows, guaranteed
        self._capacity, self._demands = capacity, demands
        head = np.flatnonzero(heads)
        first, kind = rows.kinds(head, guaranteed[head])
        self._first_of_kind = first.tolist()
        self._rows_of_kind = np.split(
            head[np.argsort(kind, kind="stable")], np.cumsum(np.bincount(kind))[:-1]
        )
        self._kind_of_row = dict(zip(head.tolist(), kind.tolist(), strict=True))
        self._tested_at = [ledger.applied] * len(first)
        self.may = np.zeros(len(rows.entry), dtype=np.bool_)
        if len(head):
            most = np.array([self._most(each) for each in range(len(first))])
            self.may[head] = capacity.enough(rows.signature[head], kind, most, demands)
        left = self.may[head]
        if quotas is not None and left.any():
            may_later = quotas.may_start_later(rows.queue_index[head], rows.signature[head])
            for each in sorted(set(kind[left & ~may_later].tolist())):
                self._test_quotas(each, quotas)

    def _first(self, kind: int) -> tuple[JobState, bool]:
        """The first job of a kind, and whether it may be within its queue's guarantee."""
        first = self._first_of_kind[kind]
        state = self._ledger.jobs[self._rows.entry[first].position.job]
        return state, bool(self._guaranteed[first])

    def _most(self, kind: int) -> IntArray:
        state, within_guarantee = self._first(kind)
        return self._capacity.most_if_stopped(
            state, self._demands, within_guarantee=within_guarantee
        )

    def _test_quotas(self, kind: int, quotas: QuotaTest) -> None:
        """Rule out the rows that the quotas of their queue refuse even if every gang left that they may stop."""
        alike = self._rows_of_kind[kind]
        alike = alike[self.may[alike]]
        if len(alike):
            state, within_guarantee = self._first(kind)
            index, signature = int(self._rows.queue_index[alike[0]]), self._rows.signature[alike]
            self.may[alike] = self._capacity.quotas_may_admit(
                state, index, signature, quotas, within_guarantee=within_guarantee
            )

    def still_may(self, row: int) -> bool:
        """Whether a row that remained may still preempt; if a fact has been applied, its whole kind is tested again."""
        kind = self._kind_of_row[row]
        if self._tested_at[kind] != self._ledger.applied:
            self._tested_at[kind] = self._ledger.applied
            alike = self._rows_of_kind[kind]
            signature, only = self._rows.signature[alike], np.zeros(len(alike), dtype=np.int64)
            most = self._most(kind)[np.newaxis]
            self.may[alike] &= self._capacity.enough(signature, only, most, self._demands)
        return bool(self.may[row])
