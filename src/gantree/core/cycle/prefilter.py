"""Whom a pass looks at: coarse tests that say no to most of those that wait, and what the pass itself has refused.

Within a pass room and quota only shrink: what is freed in it goes to nobody in it. So what was refused stays refused
for the rest of the pass, for all that ask alike:

    no place       for a signature that may use the same reserved room
    no quota       for an equivalence class (`policy.waiting_jobs.EquivalenceClass`), in every way of its jobs
    no room made   for those of an equivalence class that come later; for a job that was told a start, for it alone

Before that, two bounds are asked that cost no search: whether there may be a place (`core.queue.fit_bound`), and
whether there might be one with all gone that could ever be stopped (`core.preemption.preemptible_capacity`).
"""

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import RoomToCome
from gantree.core.preemption.preemptible_capacity import PreemptibleCapacity
from gantree.core.queue.cell_usage import any_cells, only_at_home
from gantree.core.queue.fit_bound import FitBound, last_of_classes
from gantree.core.queue.heads import EverFits, head_rows
from gantree.core.queue.held_capacity import Passing
from gantree.core.queue.needs import Needs
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.model.phases import Phase
from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.policy.walk import Chosen
from gantree.topology.fabric.fabric import BoolArray, IntArray


class Prefilter:
    """One pass: its bounds and its refusals. only: the jobs that it is about; None for all that wait."""

    def __init__(
        self,
        ledger: Ledger,
        now: float,
        needs: Needs,
        ever_fits: EverFits,
        only: frozenset[str] | None = None,
    ) -> None:
        self._ledger, self._now = ledger, now
        self._only = None if only is None else [ledger.jobs[job] for job in only]
        self._needs, self._ever_fits = needs, ever_fits
        self.queues = _queues(ledger, self._only)
        self._rows = WaitingRows.of(ledger.waiting, self.queues)
        self._heads = head_rows(ledger, self._rows, now, ever_fits, ledger.policy.backfill.depth)
        self._last_head = self._last_heads()
        self._fit = FitBound(ledger, needs)
        self._passing = Passing()
        self.rooms = RoomToCome()
        self._told = last_of_classes(ledger.jobs[job] for job in ledger.reservations)
        self._capacity: PreemptibleCapacity | None = None
        self._closed: set[int] = set()
        self._closed_for: tuple[str, ...] = ()
        self._may_suffice: dict[EquivalenceClass, tuple[int, bool]] = {}
        self._without_place: set[Hashable] = set()
        self._without_quota: set[EquivalenceClass] = set()
        self._without_room: set[EquivalenceClass] = set()
        self._told_without_room: set[str] = set()

    def _last_heads(self) -> dict[int, Position]:
        """The last head of each queue that has any."""
        rows, found = self._rows, {}
        for row in np.flatnonzero(self._heads).tolist():
            entry = rows.entry[row]
            found[entry.equivalence_class.queue] = entry.position
        return found

    # ----- whom to visit

    def chosen(self, queue: int, *, due: bool, with_heads: bool) -> Chosen:
        """Those of a queue who may start or have room made; due: of what is owed; with_heads: all heads, too, as long
        as starts are to be told.
        """
        if self._only is not None:
            chosen = Chosen(self._only_in(queue))
            return self._only_due(chosen) if due else chosen
        rows, index = self._rows, self._index_of_queue[queue]
        first, end = int(rows.first_row[index]), int(rows.first_row[index + 1])
        visited = self._survives[first:end]
        if with_heads:
            visited = visited | self._heads[first:end]
        row = [first + at for at in np.flatnonzero(visited).tolist()]
        row = [each for each in row if self._waits(rows.entry[each])]
        chosen = Chosen([rows.entry[each] for each in row], row)
        return self._only_due(chosen) if due else chosen

    def still_counts(self, entry: QueueEntry, row: int, *, tells: bool) -> bool:
        """Whether a job is still to be visited when its turn comes; tells: if it is a head, to be told a start.

        Rows of a kind get the same answer: once one of them does not count, none does.
        """
        if row < 0 or row in self._told_rows or (tells and self._heads[row]):
            return True
        return self._bound().still_may_suffice(row) or self._may_still_start(entry, row)

    def _may_still_start(self, entry: QueueEntry, row: int) -> bool:
        told, kind = tuple(self._ledger.reservations), int(self._start_kind[row])
        if self._closed_for != told:
            self._closed_for = told
            self._closed.clear()
        if not kind or kind in self._closed:
            return False
        if not self._fit.may_fit(entry.equivalence_class, self._now):
            self._closed.add(kind)
            return False
        state = self._ledger.jobs[entry.position.job]
        if not self._without_place or self._key(state) not in self._without_place:
            return True
        mask = self._passing.mask(self._ledger, state, self._now)
        if mask == self._fit.mask_of_kind[kind] and not any_cells(self._ledger):
            self._closed.add(kind)  # no other of the kind may use more reserved room
        return False

    def _waits(self, entry: QueueEntry) -> bool:
        return self._ledger.jobs[entry.position.job].phase is Phase.PENDING

    @cached_property
    def _index_of_queue(self) -> dict[int, int]:
        return {queue: index for index, queue in enumerate(self._rows.queues)}

    @cached_property
    def _told_rows(self) -> frozenset[int]:
        """Those who were told a start when the pass began: each may use what is held for it."""
        ledger, rows = self._ledger, self._rows
        told = (ledger.jobs[job] for job in ledger.reservations)
        entry = [
            QueueEntry(each.position, each.equivalence_class)
            for each in told
            if each.equivalence_class is not None
        ]
        return frozenset(rows.row_of(ledger.waiting, each) for each in entry)

    @cached_property
    def _start_kind(self) -> IntArray:
        """By row: the kind of those who may find a place, else 0 (`FitBound.kinds_of_rows`)."""
        return self._fit.kinds_of_rows(self._rows, self._now)

    @cached_property
    def _survives(self) -> BoolArray:
        """Mask of the rows that no coarse test rules out, as things are when it is first asked for."""
        survives: BoolArray = self._start_kind > 0
        table = self._needs.table(self._ledger)
        survives |= self._bound().may_suffice_rows(self._rows, self._heads, table)
        survives[list(self._told_rows)] = True
        return survives

    def _only_in(self, queue: int) -> list[QueueEntry]:
        """Those of a queue that the pass is about and who still wait, in order."""
        return sorted(
            QueueEntry(state.position, _class_of(state))
            for state in self._only or ()
            if state.queue == queue and state.phase is Phase.PENDING
        )

    def may_be_told(self, state: JobState) -> bool:
        """Whether a job that was visited may be told a start: of a pass over some, only the heads of their queues."""
        return self._only is None or self._is_head(state)

    def _only_due(self, chosen: Chosen) -> Chosen:
        is_due, jobs = self._ledger.accounts.guarantees.asks_within, self._ledger.jobs
        rows = chosen.rows or [-1] * len(chosen.jobs)
        due = [
            (each, row)
            for each, row in zip(chosen.jobs, rows, strict=True)
            if is_due(jobs[each.position.job])
        ]
        return Chosen([each for each, _ in due], [row for _, row in due])

    def _is_head(self, state: JobState) -> bool:
        """Whether a job was one of the first of its queue when the pass began."""
        last = self._last_head.get(state.queue)
        return last is not None and state.position <= last and self.ever_fits(state)

    def heads_of(self, queue: int) -> Iterator[JobState]:
        """The heads of a queue, as they were when the pass began, in order."""
        index, rows = self._index_of_queue[queue], self._rows
        first, end = int(rows.first_row[index]), int(rows.first_row[index + 1])
        for at in np.flatnonzero(self._heads[first:end]).tolist():
            yield self._ledger.jobs[rows.entry[first + at].position.job]

    def is_told_behind(self, eq_class: EquivalenceClass, position: Position) -> bool:
        """Whether a job of a line at a position or behind it was told a start: it may use what the first may not."""
        last = self._told.get(eq_class)
        return last is not None and position <= last

    def ever_fits(self, state: JobState) -> bool:
        """Whether the empty, healthy fabric holds a gang."""
        return self._ever_fits.holds(self._ledger, state)

    # ----- one job

    def may_start(self, state: JobState) -> bool:
        """Whether a job might find a place that its queue admits."""
        eq_class = _class_of(state)
        may_fit = eq_class in self._told or self._may_fit(eq_class)
        return may_fit and (not self._without_place or self._key(state) not in self._without_place)

    def may_borrow_now(self, state: JobState) -> bool:
        """Whether a job might start now on more than its queue is owed."""
        accounts = self._ledger.accounts
        if accounts.guarantees.asks_within(state) or not self._may_fit(_class_of(state)):
            return False
        return not accounts.admission(state, accounts.amounts.asked(state)).refused

    def _may_fit(self, eq_class: EquivalenceClass) -> bool:
        return eq_class not in self._without_quota and self._fit.may_fit(eq_class, self._now)

    def may_make_room(self, state: JobState) -> bool:
        """Whether others might give up enough room for a job, as things are now: for heads alone."""
        eq_class = _class_of(state)
        if eq_class in self._without_room or state.job in self._told_without_room:
            return False
        if not self._is_head(state):
            return False
        applied, may = self._may_suffice.get(eq_class, (-1, False))
        if applied != self._ledger.applied:
            need = self._needs.of(self._ledger, state.signature)
            may = self._bound().may_suffice(state, need)
            self._may_suffice[eq_class] = self._ledger.applied, may
        return may

    def _bound(self) -> PreemptibleCapacity:
        """The bound as of the start of the pass: what starts meanwhile only takes, what is stopped counted already."""
        if self._capacity is None:
            self._capacity = PreemptibleCapacity(self._ledger, self.rooms, self._now)
        return self._capacity

    # ----- what was refused

    def no_place(self, state: JobState) -> None:
        """A job and all that are alike have no place."""
        self._without_place.add(self._key(state))

    def no_quota(self, state: JobState) -> None:
        """The quota has said no to every way of a line."""
        self._without_quota.add(_class_of(state))

    def no_room(self, state: JobState) -> None:
        """Nobody makes room for a job in any of its ways, nor for those behind it in its line.

        A job that was told a start may use its reserved room, so what is refused to it is refused to nobody else.
        """
        if state.job in self._ledger.reservations:
            self._told_without_room.add(state.job)
        else:
            self._without_room.add(_class_of(state))

    @property
    def refusals(self) -> int:
        """How many refusals stand. A pass that goes on where one stopped adds to them, or records facts."""
        return (
            len(self._without_place)
            + len(self._without_quota)
            + len(self._without_room)
            + len(self._told_without_room)
        )

    def _key(self, state: JobState) -> Hashable:
        """What the answer of a search depends on beside the occupancy: who may never leave keeps clear of cells."""
        ledger = self._ledger
        kept_to = ""
        if not state.spec.preemptible and any_cells(ledger):
            kept_to = "its cells" if only_at_home(ledger, state) else "what no cell needs"
        return state.signature, self._passing.mask(ledger, state, self._now), kept_to


def _class_of(state: JobState) -> EquivalenceClass:
    assert state.equivalence_class is not None, f"{state.job} does not wait"
    return state.equivalence_class


def _queues(ledger: Ledger, only: Iterable[JobState] | None) -> tuple[int, ...]:
    """The queues in which anybody waits, or those of some jobs."""
    if only is None:
        return tuple(ledger.waiting.queues)
    return tuple(dict.fromkeys(state.queue for state in only if state.phase is Phase.PENDING))
