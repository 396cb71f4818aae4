"""The rows that a pass visits: those that might find a place, or have others give up room, as things are by now.

Within a pass room and quota only shrink, so a row that is ruled out stays so. Who may start is tested anew for all rows
that are left whenever anything was decided; who may preempt is tested anew for a kind of rows when the walk comes to
one of it.
"""

from collections.abc import Callable, Iterator

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.preemptible_capacity import PreemptibleCapacity
from gantree.core.queue.limit_test import LimitTest, has_limits
from gantree.core.queue.needs import NeedTable
from gantree.core.queue.start_test import StartTest
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.model.phases import Phase
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.topology.fabric.fabric import BoolArray, IntArray


class RowsToVisit:
    """Masks by row of all that wait. heads: who may preempt. owed: who might be owed what it asks for."""

    def __init__(
        self,
        ledger: Ledger,
        rows: WaitingRows,
        heads: BoolArray,
        owed: BoolArray,
        starting: "StartingRows",
        preempting: "PreemptingRows",
        limits: LimitTest | None,
    ) -> None:
        self._ledger, self._rows, self._owed = ledger, rows, owed
        self._heads = heads
        if limits is not None:
            self._heads = heads & limits.may_wait_for_room(rows.queue_index, rows.signature)
        self._starting, self._preempting = starting, preempting

    def any_in_queue(self, *, due: bool, with_heads: bool) -> BoolArray:
        """Mask by queue index of those with a row to visit."""
        self._starting.follow()
        visited = self._starting.may | self._preempting.may
        if with_heads:
            visited |= self._heads
        if due:
            visited &= self._owed
        found: BoolArray = np.logical_or.reduceat(visited, self._rows.first_row[:-1])
        return found

    def visits(
        self, index: int, *, due: bool, with_heads: Callable[[], bool]
    ) -> Iterator[QueueEntry]:
        """The rows of a queue to visit, as the walk goes on; due: of those that might be owed what they ask for.

        with_heads: whether heads are visited by now whatever the tests say.
        """
        row, end = int(self._rows.first_row[index]), int(self._rows.first_row[index + 1])
        while (row := self._next(row, end, due=due, with_heads=with_heads())) < end:
            entry = self._rows.entry[row]
            if self._ledger.jobs[entry.position.job].phase is Phase.PENDING:
                yield entry
            row += 1

    def _next(self, row: int, end: int, *, due: bool, with_heads: bool) -> int:
        """The first row to visit from one on; the end, if there is none."""
        self._starting.follow()
        while row < end:
            part = slice(row, end)
            certain = self._starting.may[part]
            if with_heads:
                certain = certain | self._heads[part]
            visited = certain | self._preempting.may[part]
            if due:
                visited &= self._owed[part]
            ahead = int(visited.argmax())
            if not visited[ahead]:
                return end
            row += ahead
            if certain[ahead] or self._preempting.still_may(row):
                return row
        return end


class StartingRows:
    """The rows that might find a place: `may`, a mask by row."""

    def __init__(
        self, ledger: Ledger, rows: WaitingRows, owed: BoolArray, starts: StartTest
    ) -> None:
        self._ledger, self._rows, self._owed, self._starts = ledger, rows, owed, starts
        self.may = np.ones(len(rows.entry), dtype=np.bool_)
        self._reserved = starts.no_rooms(len(rows.entry))
        self._reservations: object = None
        self._tested_at = -1

    def follow(self) -> None:
        """Test those that are left as things are now."""
        if self._tested_at == self._ledger.applied:
            return
        self._tested_at = self._ledger.applied
        reservations = tuple(self._ledger.reservations.items())
        if reservations != self._reservations:
            self._reservations = reservations
            self._reserved[:] = (1 << len(reservations)) - 1
            left = self._test()
            self._reserved[left] = self._starts.reserved_of(self._rows, left, self._owed)
        self._test()

    def _test(self) -> IntArray:
        """The rows that are left, by the reserved room that each may use at most."""
        row = np.flatnonzero(self.may)
        signature = self._rows.signature[row]
        may = self._starts.rows_that_may_start(signature, self._reserved[row])
        if has_limits(self._ledger.policy):
            limits = LimitTest(self._ledger, self._rows.queues)
            may &= limits.may_start(self._rows.queue_index[row], signature)
        self.may[row[~may]] = False
        return row[may]

    def no_place(self, signature: int, reserved: int) -> None:
        """A search found no place for a signature with the reserved room of a mask: nor for those with no more."""
        self.may[(self._rows.signature == signature) & (self._reserved & ~reserved == 0)] = False

    def no_quota(self, index: int, eq_class: EquivalenceClass) -> None:
        """The quota refuses all of a queue and a priority that ask for the same."""
        part = slice(int(self._rows.first_row[index]), int(self._rows.first_row[index + 1]))
        alike = self._rows.signature[part] == eq_class.signature
        alike &= self._rows.priority[part] == eq_class.priority
        alike &= self._rows.preemptible[part] == eq_class.preemptible
        self.may[part][alike] = False


class PreemptingRows:
    """Heads that might have a place if all left that they could ever stop: `may`, a mask by row.

    Heads of a queue and a priority that are alike owed are a kind: they may stop what the first of them may, or less.
    """

    def __init__(
        self,
        ledger: Ledger,
        rows: WaitingRows,
        heads: BoolArray,
        owed: BoolArray,
        capacity: PreemptibleCapacity,
        needs: NeedTable,
        limits: LimitTest | None,
    ) -> None:
        self._ledger, self._rows, self._owed = ledger, rows, owed
        self._capacity, self._needs = capacity, needs
        head = np.flatnonzero(heads)
        first, kind = rows.kinds(head, owed[head])
        self._first_of_kind = first.tolist()
        self._rows_of_kind = np.split(
            head[np.argsort(kind, kind="stable")], np.cumsum(np.bincount(kind))[:-1]
        )
        self._kind_of_row = dict(zip(head.tolist(), kind.tolist(), strict=True))
        self._tested_at = [ledger.applied] * len(first)
        self.may = np.zeros(len(rows.entry), dtype=np.bool_)
        if len(head):
            most = np.array([self._most(each) for each in range(len(first))])
            self.may[head] = capacity.enough(rows.signature[head], kind, most, needs)
        if limits is not None:
            for each in range(len(first)):
                self._test_limits(each, limits)

    def _first(self, kind: int) -> tuple[JobState, bool]:
        """The first job of a kind, and whether it might be owed what it asks for."""
        first = self._first_of_kind[kind]
        return self._ledger.jobs[self._rows.entry[first].position.job], bool(self._owed[first])

    def _most(self, kind: int) -> IntArray:
        state, is_owed = self._first(kind)
        return self._capacity.most_if_stopped(state, self._needs, is_owed=is_owed)

    def _test_limits(self, kind: int, limits: LimitTest) -> None:
        """Rule out those that the limits of their queue refuse whoever they stop."""
        alike = self._rows_of_kind[kind]
        alike = alike[self.may[alike]]
        if len(alike):
            state, is_owed = self._first(kind)
            index, signature = int(self._rows.queue_index[alike[0]]), self._rows.signature[alike]
            self.may[alike] = self._capacity.limits_may_admit(
                state, index, signature, limits, is_owed=is_owed
            )

    def still_may(self, row: int) -> bool:
        """Whether a row that might is so as things are now; with it all of its kind are tested."""
        kind = self._kind_of_row[row]
        if self._tested_at[kind] != self._ledger.applied:
            self._tested_at[kind] = self._ledger.applied
            alike = self._rows_of_kind[kind]
            signature, only = self._rows.signature[alike], np.zeros(len(alike), dtype=np.int64)
            most = self._most(kind)[np.newaxis]
            self.may[alike] &= self._capacity.enough(signature, only, most, self._needs)
        return bool(self.may[row])
