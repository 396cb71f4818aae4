"""Whom a pass looks at: coarse tests that say no to most of those that wait, and what the pass itself has refused.

Within a pass room and quota only shrink: what is freed in it goes to nobody in it. So what was refused stays refused
for the rest of the pass, for all that ask alike:

    no place       for a signature that may use the same reserved room
    no quota       for an equivalence class (`policy.waiting_jobs.EquivalenceClass`), in every way of its jobs
    no room made   for those of an equivalence class that come later; for a job that was told a start, for it alone

Before that, two bounds are asked that cost no search: whether there may be a place (`core.queue.fit_bound`), and
whether there might be one with all gone that could ever be stopped (`core.preemption.preemptible_capacity`).
"""

from collections.abc import Hashable

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import RoomToCome
from gantree.core.preemption.preemptible_capacity import PreemptibleCapacity
from gantree.core.queue.cell_usage import any_cells, only_at_home
from gantree.core.queue.fit_bound import FitBound, Needs, last_of_classes
from gantree.core.queue.heads import EverFits, heads
from gantree.core.queue.held_capacity import Passing
from gantree.model.phases import Phase
from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.policy.walk import Looked


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
        self._ledger, self._now, self._only = ledger, now, only
        self._needs, self._ever_fits = needs, ever_fits
        self._fit = FitBound(ledger, needs)
        self._passing = Passing()
        self.rooms = RoomToCome()
        self._told = last_of_classes(ledger.jobs[job] for job in ledger.reservations)
        self._capacity: PreemptibleCapacity | None = None
        self._may_suffice: dict[EquivalenceClass, bool] = {}
        self._heads: dict[int, dict[str, QueueEntry]] = {}
        self._without_place: set[Hashable] = set()
        self._without_quota: set[EquivalenceClass] = set()
        self._without_room: set[EquivalenceClass] = set()
        self._told_without_room: set[str] = set()

    # ----- whom to look at

    def looked(self, queue: int, *, due: bool, with_heads: bool) -> Looked:
        """Those of a queue who may start or have room made; due: of what is owed; with_heads: all heads, too."""
        ledger = self._ledger
        if self._only is not None:
            looked = Looked(self._only_in(queue))
            return self._only_due(looked) if due else looked
        alone = [
            each
            for each in self.heads_of(queue).values()
            if ledger.jobs[each.position.job].phase is Phase.PENDING
            and (with_heads or self.may_make_room(ledger.jobs[each.position.job]))
        ]
        classes = [
            eq_class
            for signature in self._fit.fitting_in(queue)
            for eq_class in ledger.waiting.classes_of_signature_in(queue, signature)
            if self._may_fit(eq_class)
        ]
        told = [
            QueueEntry(state.position, state.equivalence_class)
            for state in map(ledger.jobs.__getitem__, ledger.reservations)
            if state.queue == queue and state.equivalence_class is not None
        ]
        looked = Looked(sorted({*alone, *told}), classes)
        return self._only_due(looked) if due else looked

    def _only_in(self, queue: int) -> list[QueueEntry]:
        """Those of a queue that the pass is about and who still wait, in order."""
        states = [self._ledger.jobs[job] for job in self._only or ()]
        return sorted(
            QueueEntry(state.position, _class_of(state))
            for state in states
            if state.queue == queue and state.phase is Phase.PENDING
        )

    def may_be_told(self, state: JobState) -> bool:
        """Whether a job that was looked at may be told a start: of a pass over some, only the heads of their queues."""
        return self._only is None or state.job in self.heads_of(state.queue)

    def _only_due(self, looked: Looked) -> Looked:
        asks_within_guarantee = self._ledger.accounts.guarantees.asks_within
        first_of = self._ledger.waiting
        return Looked(
            [
                each
                for each in looked.alone
                if asks_within_guarantee(self._ledger.jobs[each.position.job])
            ],
            [
                each
                for each in looked.classes
                if asks_within_guarantee(self._ledger.jobs[first_of[each][0].job])
            ],
        )

    def heads_of(self, queue: int) -> dict[str, QueueEntry]:
        """The heads of a queue by job, as they were when the pass first asked."""
        found = self._heads.get(queue)
        if found is None:
            those = heads(self._ledger, queue, self._now, self._ever_fits)
            found = self._heads[queue] = {each.position.job: each for each in those}
        return found

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
        """Whether others might give up enough room for a job: for heads alone."""
        eq_class = _class_of(state)
        if eq_class in self._without_room or state.job in self._told_without_room:
            return False
        if state.job not in self.heads_of(state.queue):
            return False
        may = self._may_suffice.get(eq_class)
        if may is None:  # of those in a line the first may stop most
            need = self._needs.of(self._ledger, state.signature)
            may = self._may_suffice[eq_class] = self._bound().may_suffice(state, need)
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
