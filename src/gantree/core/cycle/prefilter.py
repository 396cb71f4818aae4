"""Whom a pass looks at: coarse tests that say no to most of those that wait, and what the pass itself has refused.

Within a pass room and quota only shrink: what is freed in it goes to nobody in it. So what was refused stays refused
for the rest of the pass, for all that ask alike:

    no place       for a signature that may use the same reserved room
    no quota       for those of a queue and a priority that ask for the same, in every way of theirs
    no room made   for those of an equivalence class that come later; for a job that was told a start, or backs off, for
                   it alone

Before that, two bounds are asked that cost no search: whether there may be a place (`core.queue.start_test`), and
whether there might be one with all gone that could ever be stopped (`core.preemption.preemptible_capacity`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property

import numpy as np

from gantree.core.cycle.rows_to_visit import PreemptingRows, RowsToVisit, StartingRows
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import RoomToCome
from gantree.core.preemption.preemptible_capacity import PreemptibleCapacity
from gantree.core.queue.cell_usage import any_cells, only_at_home
from gantree.core.queue.heads import EverFits, head_rows
from gantree.core.queue.held_capacity import Passing
from gantree.core.queue.limit_test import LimitTest, has_limits
from gantree.core.queue.needs import Needs
from gantree.core.queue.owed_rows import OwedTest
from gantree.core.queue.preemption_backoff import backs_off_until
from gantree.core.queue.start_test import StartTest
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.model.phases import Phase
from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.topology.fabric.fabric import BoolArray


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
        self._needs, self._ever_fits = needs.table(ledger), ever_fits
        self.queues = _queues(ledger, self._only)
        self._index_of_queue = {queue: index for index, queue in enumerate(self.queues)}
        self._rows = WaitingRows.of(ledger.waiting, self.queues)
        self._heads = head_rows(ledger, self._rows, now, ever_fits, ledger.policy.backfill.depth)
        self._last_head = self._last_heads()
        self._passing = Passing()
        self._starts = StartTest(ledger, self._needs, self._passing, now)
        self.rooms = RoomToCome()
        self._told = last_of_classes(ledger.jobs[job] for job in ledger.reservations)
        self._holders = len(ledger.holding)
        self._may_suffice: dict[EquivalenceClass, tuple[int, bool]] = {}
        self._without_place: set[Hashable] = set()
        self._without_quota: set[Hashable] = set()
        self._without_room: set[EquivalenceClass] = set()
        self._alone_without_room: set[str] = set()

    def _last_heads(self) -> dict[int, Position]:
        """The last head of each queue that has any."""
        head = np.flatnonzero(self._heads)
        is_last = np.diff(self._rows.queue_index[head], append=-1) != 0
        entries = [self._rows.entry[row] for row in head[is_last].tolist()]
        return {entry.equivalence_class.queue: entry.position for entry in entries}

    # ----- whom to visit

    def queues_to_visit(self, *, due: bool, with_heads: bool) -> list[int]:
        """The queues with jobs to visit now; due, with_heads: as of `visits`."""
        if self._only is not None or not self.queues:
            return list(self.queues)
        found = self._to_visit.any_in_queue(due=due, with_heads=with_heads)
        return [
            queue for queue, any_there in zip(self.queues, found.tolist(), strict=True) if any_there
        ]

    def visits(
        self, queue: int, *, due: bool, with_heads: Callable[[], bool]
    ) -> Iterable[QueueEntry]:
        """Those of a queue who might start or have room made; due: of those who might be owed what they ask for.

        with_heads: whether all heads are visited by now, as long as starts are to be told.
        """
        if self._only is not None:
            return self._only_in(queue)
        return self._to_visit.visits(self._index_of_queue[queue], due=due, with_heads=with_heads)

    @cached_property
    def _owed(self) -> BoolArray:
        """Mask of the rows that might be owed what they ask for."""
        rows = self._rows
        return OwedTest(self._ledger, rows.queues).may_be_owed(rows.queue_index, rows.signature)

    @cached_property
    def _starting(self) -> StartingRows:
        return StartingRows(self._ledger, self._rows, self._owed, self._starts)

    @cached_property
    def _to_visit(self) -> RowsToVisit:
        ledger, rows, heads, owed = self._ledger, self._rows, self._heads, self._owed
        needs, limits = self._needs, self._limits
        preempting = PreemptingRows(ledger, rows, heads, owed, self._capacity, needs, limits)
        return RowsToVisit(ledger, rows, heads, owed, self._starting, preempting, limits)

    @cached_property
    def _limits(self) -> LimitTest | None:
        """The limits of queues when the pass began; None without any."""
        return LimitTest(self._ledger, self.queues) if has_limits(self._ledger.policy) else None

    @cached_property
    def _capacity(self) -> PreemptibleCapacity:
        """The bound as of the start of the pass: what starts meanwhile only takes, what is stopped counted already."""
        return PreemptibleCapacity(self._ledger, self.rooms, self._now, self._holders)

    def _only_in(self, queue: int) -> list[QueueEntry]:
        """Those of a queue that the pass is about and who still wait, in order."""
        return sorted(
            QueueEntry(state.position, _class_of(state))
            for state in self._only or ()
            if state.queue == queue and state.phase is Phase.PENDING
        )

    def may_be_told(self, state: JobState) -> bool:
        """Whether a job that was visited may be told a start: only the heads of their queues."""
        return self._is_head(state)

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
        if not self._may_fit(state):
            return False
        return not self._without_place or self._key(state) not in self._without_place

    def may_borrow_now(self, state: JobState) -> bool:
        """Whether a job might start now on more than its queue is owed."""
        accounts = self._ledger.accounts
        if accounts.guarantees.asks_within(state) or not self._may_fit(state):
            return False
        return not accounts.admission(state, accounts.amounts.asked(state)).refused

    def _may_fit(self, state: JobState) -> bool:
        return _asked(state) not in self._without_quota and self._starts.may_start(state)

    def may_make_room(self, state: JobState) -> bool:
        """Whether others might give up enough room for a job, as things are now: for heads alone."""
        eq_class = _class_of(state)
        if eq_class in self._without_room or state.job in self._alone_without_room:
            return False
        if not self._is_head(state):
            return False
        applied, may = self._may_suffice.get(eq_class, (-1, False))
        if applied != self._ledger.applied:
            may = self._limits_may_admit(state) and self._capacity.may_suffice(state, self._needs)
            self._may_suffice[eq_class] = self._ledger.applied, may
        return may

    def _limits_may_admit(self, state: JobState) -> bool:
        """Whether the limits of a job's queue may admit it with all gone that it could stop."""
        if self._limits is None:
            return True
        index, signature = self._index_of_queue[state.queue], np.array([state.signature])
        is_owed = self._capacity.may_be_owed(state)
        may = self._capacity.limits_may_admit(
            state, index, signature, self._limits, is_owed=is_owed
        )
        return bool(may[0])

    # ----- what was refused

    def no_place(self, state: JobState) -> None:
        """A job and all that are alike have no place."""
        self._without_place.add(self._key(state))
        if self._only is None and not any_cells(self._ledger):
            mask = self._passing.mask(self._ledger, state, self._now)
            self._starting.no_place(state.signature, mask)

    def no_quota(self, state: JobState) -> None:
        """The quota has said no to every way of a job, and of all of its queue and priority that ask for the same."""
        self._without_quota.add(_asked(state))
        if self._only is None:
            index = self._index_of_queue[state.queue]
            self._starting.no_quota(index, _class_of(state))

    def no_room(self, state: JobState) -> None:
        """Nobody makes room for a job in any of its ways, nor for those behind it in its line.

        A job that was told a start may use its reserved room, and one that backs off may preempt nobody, so what is
        refused to these is refused to nobody else.
        """
        backs_off = backs_off_until(self._ledger, state) > self._now
        if backs_off or state.job in self._ledger.reservations:
            self._alone_without_room.add(state.job)
        else:
            self._without_room.add(_class_of(state))

    @property
    def refusals(self) -> int:
        """How many refusals stand. A pass that goes on where one stopped adds to them, or records facts."""
        return (
            len(self._without_place)
            + len(self._without_quota)
            + len(self._without_room)
            + len(self._alone_without_room)
        )

    def _key(self, state: JobState) -> Hashable:
        """What the answer of a search depends on beside the occupancy: who may never leave keeps clear of cells."""
        ledger = self._ledger
        kept_to = ""
        if not state.spec.preemptible and any_cells(ledger):
            kept_to = "its cells" if only_at_home(ledger, state) else "what no cell needs"
        return state.signature, self._passing.mask(ledger, state, self._now), kept_to


def last_of_classes(waiting: Iterable[JobState]) -> dict[EquivalenceClass, Position]:
    """Of some jobs that wait, the last of each class."""
    last: dict[EquivalenceClass, Position] = {}
    for state in waiting:
        eq_class = _class_of(state)
        last[eq_class] = max(last.get(eq_class, state.position), state.position)
    return last


def _asked(state: JobState) -> Hashable:
    """What the answer of the quota depends on: the queue, what is asked of it, and which claims give way."""
    return state.queue, state.signature, state.priority, state.spec.preemptible


def _class_of(state: JobState) -> EquivalenceClass:
    assert state.equivalence_class is not None, f"{state.job} does not wait"
    return state.equivalence_class


def _queues(ledger: Ledger, only: Iterable[JobState] | None) -> tuple[int, ...]:
    """The queues in which anybody waits, or those of some jobs."""
    if only is None:
        return tuple(ledger.waiting.queues)
    return tuple(dict.fromkeys(state.queue for state in only if state.phase is Phase.PENDING))
