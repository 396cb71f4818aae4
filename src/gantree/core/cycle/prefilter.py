"""The jobs that a pass considers one by one: no bound excludes them, and the pass has not refused the same request.

Two bounds take no search: whether a gang may fit on free room (`core.queue.start_test`), and whether it may fit without
all gangs that it could ever stop (`core.preemption.preemptible_capacity`). They are compared as arrays for all pending
jobs (`core.cycle.rows_to_visit`), and again for each job that the walk comes to. What the pass itself has refused is in
`core.cycle.pass_refusals`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property

import numpy as np

from gantree.core.cycle.pass_refusals import PassRefusals
from gantree.core.cycle.rows_to_visit import PreemptingRows, RowsToVisit, StartingRows
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import ProjectedOccupancies
from gantree.core.preemption.preemptible_capacity import PreemptibleCapacity
from gantree.core.queue.cell_usage import any_cells
from gantree.core.queue.eligibility import equivalence_class_of
from gantree.core.queue.guarantee_test import GuaranteeTest
from gantree.core.queue.heads import FeasibilityCache, head_rows
from gantree.core.queue.held_capacity import UsableReservations
from gantree.core.queue.quota_test import QuotaTest
from gantree.core.queue.slot_demands import SlotDemands
from gantree.core.queue.start_test import StartTest
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.model.phases import Phase
from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.topology.fabric.fabric import BoolArray


class Prefilter:
    """The bounds of one pass. only: the jobs that it considers; None for all pending jobs.

    advanced: jobs that have just moved forward, and may therefore replace an estimate (`ReservationSelector`).
    """

    def __init__(
        self,
        ledger: Ledger,
        now: float,
        demands: SlotDemands,
        feasibility: FeasibilityCache,
        only: frozenset[str] | None = None,
        advanced: Collection[str] = (),
    ) -> None:
        self._ledger, self._now = ledger, now
        self._only = None if only is None else [ledger.jobs[job] for job in only]
        self._demands, self._feasibility = demands.table(ledger), feasibility
        self.queues = _queues(ledger, self._only)
        self._index_of_queue = {queue: index for index, queue in enumerate(self.queues)}
        self._rows = WaitingRows.of(ledger.waiting, self.queues)
        self._heads = head_rows(ledger, self._rows, now, feasibility, ledger.policy.backfill.depth)
        self._last_head = self._last_heads()
        self._usable = UsableReservations()
        self._starts = StartTest(ledger, self._demands, self._usable, now)
        self._refusals = PassRefusals(ledger, self._usable, now)
        self.projected = ProjectedOccupancies()
        self._advanced = [ledger.jobs[job] for job in advanced if _waits(ledger.jobs[job])]
        reserved = (ledger.jobs[job] for job in ledger.reservations)
        self._last_concerned = last_of_classes((*reserved, *self._advanced))
        self._holders = len(ledger.holding)
        self._may_suffice: dict[EquivalenceClass, tuple[int, bool]] = {}

    def _last_heads(self) -> dict[int, Position]:
        """The last head of each queue that has any."""
        head = np.flatnonzero(self._heads)
        is_last = np.diff(self._rows.queue_index[head], append=-1) != 0
        entries = [self._rows.entry[row] for row in head[is_last].tolist()]
        return {entry.equivalence_class.queue: entry.position for entry in entries}

    # ----- which jobs to visit

    def queues_to_visit(self, *, guaranteed_only: bool, with_heads: bool) -> list[int]:
        """The queues with jobs to visit now; for the arguments see `visits`."""
        if self._only is not None or not self.queues:
            return list(self.queues)
        found = self._to_visit.queues_with_rows(
            guaranteed_only=guaranteed_only, with_heads=with_heads
        )
        return [
            queue for queue, any_there in zip(self.queues, found.tolist(), strict=True) if any_there
        ]

    def visits(
        self, queue: int, *, guaranteed_only: bool, with_heads: Callable[[], bool]
    ) -> Iterable[QueueEntry]:
        """The jobs of a queue to visit, in order. guaranteed_only: those that may be within their guarantee.

        with_heads: whether all heads are visited at the moment, because more reservations may be made.
        """
        if self._only is not None:
            return self._only_in(queue)
        index = self._index_of_queue[queue]
        return self._to_visit.visits(index, guaranteed_only=guaranteed_only, with_heads=with_heads)

    @cached_property
    def _guaranteed(self) -> BoolArray:
        """A mask of the rows that may be within their guarantee."""
        rows = self._rows
        test = GuaranteeTest(self._ledger, rows.queues)
        return test.may_be_within(rows.queue_index, rows.signature)

    @cached_property
    def _starting(self) -> StartingRows:
        return StartingRows(self._ledger, self._rows, self._guaranteed, self._starts, self._quotas)

    @cached_property
    def _to_visit(self) -> RowsToVisit:
        ledger, rows, heads, guaranteed = self._ledger, self._rows, self._heads, self._guaranteed
        capacity, quotas = self._capacity, self._quotas
        preempting = PreemptingRows(
            ledger, rows, heads, guaranteed, capacity, self._demands, quotas
        )
        return RowsToVisit(
            ledger, rows, heads, self._advanced_rows, guaranteed, self._starting, preempting, quotas
        )

    @property
    def _advanced_rows(self) -> BoolArray:
        """A mask of the rows of heads that have just moved forward."""
        mask = np.zeros(len(self._rows.entry), dtype=np.bool_)
        mask[[self._rows.row_of(state) for state in self._advanced]] = True
        return mask & self._heads

    @cached_property
    def _quotas(self) -> QuotaTest | None:
        """The quotas of queues when the pass began; None if there are none."""
        return QuotaTest(self._ledger, self.queues) if self._ledger.policy.queues else None

    @cached_property
    def _capacity(self) -> PreemptibleCapacity:
        """The bound at the start of the pass, valid for all of it.

        Gangs that start meanwhile only take room, and gangs that stop were counted as preemptible.
        """
        return PreemptibleCapacity(self._ledger, self.projected, self._now, self._holders)

    def _only_in(self, queue: int) -> list[QueueEntry]:
        """The jobs of a queue that the pass considers and that are still pending, in order."""
        return sorted(
            QueueEntry(state.position, equivalence_class_of(state))
            for state in self._only or ()
            if state.queue == queue and state.phase is Phase.PENDING
        )

    def is_head(self, state: JobState) -> bool:
        """Whether a job was a head of its queue when the pass began."""
        last = self._last_head.get(state.queue)
        return last is not None and state.position <= last and self.is_feasible(state)

    def heads_of(self, queue: int) -> Iterator[JobState]:
        """The heads of a queue when the pass began, in order."""
        index, rows = self._index_of_queue[queue], self._rows
        first, end = int(rows.first_row[index]), int(rows.first_row[index + 1])
        for at in np.flatnonzero(self._heads[first:end]).tolist():
            yield self._ledger.jobs[rows.entry[first + at].position.job]

    def reservations_concern(self, eq_class: EquivalenceClass, position: Position) -> bool:
        """Whether a job of an equivalence class, from a position on, has a reservation and may use its room, or has
        just moved forward and may replace one.
        """
        last = self._last_concerned.get(eq_class)
        return last is not None and position <= last

    def is_feasible(self, state: JobState) -> bool:
        """Whether the empty, healthy fabric holds a gang."""
        return self._feasibility.is_feasible(self._ledger, state)

    # ----- one job

    def may_start(self, state: JobState) -> bool:
        """Whether a job may find a placement that its queue admits."""
        return self._may_fit(state) and not self._refusals.of_placement(state)

    def may_borrow_now(self, state: JobState) -> bool:
        """Whether a job may start now beyond its guarantee."""
        accounts = self._ledger.accounts
        if accounts.guarantees.asks_within(state) or not self._may_fit(state):
            return False
        return not accounts.admission(state, accounts.amounts.requested(state)).refused

    def _may_fit(self, state: JobState) -> bool:
        return not self._refusals.of_quota(state) and self._starts.may_start(state)

    def may_preempt(self, state: JobState) -> bool:
        """Whether enough capacity may be freed for a job now; heads only."""
        if self._refusals.of_preemption(state) or not self.is_head(state):
            return False
        eq_class = equivalence_class_of(state)
        applied, may = self._may_suffice.get(eq_class, (-1, False))
        if applied != self._ledger.applied:
            may = self._quotas_may_admit(state) and self._capacity.may_suffice(state, self._demands)
            self._may_suffice[eq_class] = self._ledger.applied, may
        return may

    def _quotas_may_admit(self, state: JobState) -> bool:
        """Whether the quotas of a job's queue may admit it once every gang is gone that it may stop."""
        if self._quotas is None:
            return True
        index, signature = self._index_of_queue[state.queue], np.array([state.signature])
        within_guarantee = self._capacity.may_be_within_guarantee(state)
        may = self._capacity.quotas_may_admit(
            state, index, signature, self._quotas, within_guarantee=within_guarantee
        )
        return bool(may[0])

    # ----- what was refused

    def refuse_placement(self, state: JobState) -> None:
        """No placement was found for a job: it is refused to all jobs with the same request."""
        self._refusals.add_placement(state)
        if self._only is None and not any_cells(self._ledger):
            mask = self._usable.mask(self._ledger, state, self._now)
            self._starting.exclude_signature(state.signature, mask)

    def refuse_quota(self, state: JobState) -> None:
        """Its queue refused every variant of a job, and so of all jobs with the same request."""
        self._refusals.add_quota(state)
        if self._only is None:
            index = self._index_of_queue[state.queue]
            self._starting.exclude_class(index, equivalence_class_of(state))

    def refuse_preemption(self, state: JobState) -> None:
        """No capacity can be freed for any variant of a job, nor for later jobs of its equivalence class."""
        self._refusals.add_preemption(state)

    @property
    def refusals(self) -> int:
        """The number of refusals."""
        return self._refusals.count


def last_of_classes(jobs: Iterable[JobState]) -> dict[EquivalenceClass, Position]:
    """The last position of each equivalence class among some pending jobs."""
    last: dict[EquivalenceClass, Position] = {}
    for state in jobs:
        eq_class = equivalence_class_of(state)
        last[eq_class] = max(last.get(eq_class, state.position), state.position)
    return last


def _waits(state: JobState) -> bool:
    """Whether a job is among the pending ones that are considered."""
    return state.phase is Phase.PENDING and state.equivalence_class is not None


def _queues(ledger: Ledger, only: Iterable[JobState] | None) -> tuple[int, ...]:
    """The queues with pending jobs, or those of some jobs."""
    if only is None:
        return tuple(ledger.waiting.queues)
    return tuple(dict.fromkeys(state.queue for state in only if state.phase is Phase.PENDING))
