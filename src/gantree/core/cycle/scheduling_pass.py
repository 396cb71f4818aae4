"""One pass: a walk over pending jobs in policy order. Each starts, claims room, gets a reservation, or waits.

Each job is decided before the next one is considered. Start and preemption share one walk: if all jobs that fit started
first, a small job would start on GPUs that are taken away again a moment later. The gates of a job, in order:

    held, `after`, back-off   it is not considered
    LIMIT, QUOTA              admission by its queue (`policy.quota`)
    ROOM, CONTIGUITY          a placement on free room, or on reserved room that it may use (`core.queue.held_capacity`)
    HARM                      capacity that others give up, from least harm to most (`core.preemption.free_capacity`)

Jobs within their queue's guarantee come first, then all: a gang that borrows would be stopped again at once if a later
job reclaims the guarantee.

A pass makes at most `preemption.plans` preemption plans. At that limit it stops; it continues with the refusals that it
has made, if nothing has changed meanwhile (`core.cycle.cycle`). It also stops behind the last split element of an array
with more elements (`core.lifecycle.arrays`), if that one starts or claims room.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from gantree.core.cycle.claim_admission import ClaimAdmission
from gantree.core.cycle.prefilter import Prefilter
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import start
from gantree.core.preemption.candidates import PreemptionRequest
from gantree.core.preemption.free_capacity import free_capacity_for
from gantree.core.queue.eligibility import eligible, in_order
from gantree.core.queue.held_capacity import usable_holds, without_holds
from gantree.core.queue.job_variants import JobVariants, VariantAdmission
from gantree.core.queue.slot_demands import SlotDemands
from gantree.core.reservations.selection import ReservationSelector
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.resize.elastic import best_size
from gantree.policy.order import Position
from gantree.policy.rules import Policy
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry
from gantree.policy.walk import Walk


@dataclass(slots=True)
class SchedulingPass:
    """A pass, and what it has found so far.

    plans: the number of its preemption plans since it last began or continued. waits_for_quota: whether a job fits that
    its queue refuses. moments: when time alone may change a refusal. closed: queues in strict order whose first job
    still waits.
    """

    policy: Policy
    preferences: PlacementPreferences
    claims: ClaimAdmission
    demands: SlotDemands
    variants: JobVariants
    prefilter: Prefilter
    selector: ReservationSelector
    plans: int = 0
    waits_for_quota: bool = False
    moments: list[float] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)

    def walk(self, builder: DecisionBuilder) -> bool:
        """Consider every job that may start or preempt, and make reservations. Returns False if it stops early."""
        may_reclaim = builder.ledger.accounts.guarantees.may_reclaim
        if any(map(may_reclaim, self.prefilter.queues)) and not self._visit_all(
            builder, guaranteed_only=True
        ):
            return False
        return self._visit_all(builder, guaranteed_only=False)

    @property
    def _strict_order(self) -> bool:
        return self.policy.backfill.overtake == "none"

    # ----- the order

    def _visit_all(self, builder: DecisionBuilder, *, guaranteed_only: bool) -> bool:
        """Visit jobs in policy order. guaranteed_only: only jobs within their guarantee, and without reservations."""
        ledger = builder.ledger
        self.closed.clear()
        for _, position in self._candidates(builder, guaranteed_only=guaranteed_only):
            state = ledger.jobs[position.job]
            if not eligible(ledger, state, builder.now):
                continue
            if self.plans >= self.policy.preemption.plans:
                return False
            is_undecided = ledger.is_undecided_element(state)
            if not guaranteed_only or self._is_first_guaranteed(builder, state):
                self._schedule(builder, state)
            if is_undecided and ledger.is_used_up(state.array):
                return False
            self._close_queue_behind(builder, state)
            if guaranteed_only or state.phase is not Phase.PENDING:
                continue
            if self.prefilter.is_head(state):
                self.selector.consider(builder, state)
        return True

    def _candidates(self, builder: DecisionBuilder, *, guaranteed_only: bool) -> Walk:
        ledger, names = builder.ledger, builder.ledger.accounts.tree.queue

        def is_candidate(eq_class: EquivalenceClass, position: Position) -> bool:
            return self._is_candidate(builder, eq_class, position, guaranteed_only=guaranteed_only)

        if self._strict_order:
            is_closed = lambda queue: names[queue] in self.closed  # noqa: E731 - called for each job
            queues: Collection[int] = self.prefilter.queues
            if guaranteed_only:
                queues = list(filter(ledger.accounts.guarantees.may_reclaim, queues))
            return in_order(ledger, builder.now, is_candidate, queues=queues, is_closed=is_closed)

        def with_heads() -> bool:
            return not guaranteed_only and self.selector.may_reserve_more(ledger)

        def choose(queue: int) -> Iterable[QueueEntry]:
            return self.prefilter.visits(
                queue, guaranteed_only=guaranteed_only, with_heads=with_heads
            )

        queues = self.prefilter.queues_to_visit(
            guaranteed_only=guaranteed_only, with_heads=with_heads()
        )
        return in_order(ledger, builder.now, is_candidate, queues=queues, choose=choose)

    def _is_candidate(
        self,
        builder: DecisionBuilder,
        eq_class: EquivalenceClass,
        position: Position,
        *,
        guaranteed_only: bool,
    ) -> bool:
        """Whether to visit the next job of an equivalence class, and so its later ones."""
        ledger = builder.ledger
        state = ledger.jobs[position.job]
        if state.spec.queue in self.closed:
            return False
        if self._strict_order:
            return True
        if guaranteed_only and not ledger.accounts.guarantees.asks_within(state):
            return False
        if self.prefilter.may_start(state) or self.prefilter.may_preempt(state):
            return True
        if not guaranteed_only and self.selector.may_reserve_more(ledger):
            return True
        return self.prefilter.reservations_concern(eq_class, position)

    def _is_first_guaranteed(self, builder: DecisionBuilder, state: JobState) -> bool:
        """Whether a job is within its guarantee, and no earlier job of its queue may start now by borrowing.

        Such an earlier job might stop it again: within one queue its order decides.
        """
        ledger = builder.ledger
        if not ledger.accounts.guarantees.asks_within(state):
            return False
        for other in self.prefilter.heads_of(state.queue):
            if other.position >= state.position:
                break
            waits = other.phase is Phase.PENDING and other.job not in ledger.claims
            if waits and self.prefilter.may_borrow_now(other):
                return False
        return True

    def _close_queue_behind(self, builder: DecisionBuilder, state: JobState) -> None:
        """In strict order, a job that still waits closes its queue, unless it can never start."""
        if not self._strict_order or state.phase is not Phase.PENDING:
            return
        if state.job in builder.ledger.claims or not self.prefilter.is_feasible(state):
            return
        admissions = self.variants.admissions(builder.ledger, state)
        if not all(admission.never for _, admission in admissions):
            self.closed.add(state.spec.queue)

    # ----- one job

    def _schedule(self, builder: DecisionBuilder, state: JobState) -> None:
        """Start a job in its first variant that fits, or free capacity for the first variant for which that works."""
        ledger, prefilter = builder.ledger, self.prefilter
        variants = self.variants.admissions(ledger, state)
        if prefilter.may_start(state):
            admitted = [variant for variant, admission in variants if not admission.refused]
            if any(self._start(builder, state, variant) for variant in admitted):
                return
            self.waits_for_quota |= len(admitted) < len(variants)
            if len(admitted) == len(variants):
                prefilter.refuse_placement(state)
            elif not admitted:
                prefilter.refuse_quota(state)
        if prefilter.may_preempt(state):
            if ledger.leaving:
                variants = self.variants.admissions(ledger, state, projected=True)
            self._preempt(builder, state, variants)

    def _preempt(
        self, builder: DecisionBuilder, state: JobState, variants: Iterable[VariantAdmission]
    ) -> None:
        """Free capacity for the first variant of a job for which that is possible."""
        for variant, admission in variants:
            if admission.never:
                continue
            self.plans += 1
            refusal = free_capacity_for(
                builder,
                PreemptionRequest(state, variant, admission),
                self.preferences,
                self.prefilter.projected,
                self.demands,
            )
            if refusal is None:
                return
            if refusal.retry_at is not None:
                self.moments.append(refusal.retry_at)
        self.prefilter.refuse_preemption(state)

    def _start(self, builder: DecisionBuilder, state: JobState, variant: Job) -> bool:
        """Start a variant if it fits on free room, or on held room that it may use, and its queue admits it there."""
        owners = usable_holds(builder.ledger, state, builder.now)
        if not owners:
            return self._start_on_free_room(builder, state, variant)
        with without_holds(builder.ledger, owners):
            return self._start_on_free_room(builder, state, variant)

    def _start_on_free_room(self, builder: DecisionBuilder, state: JobState, variant: Job) -> bool:
        ledger = builder.ledger
        placement = self._find(ledger, variant)
        if placement is None:
            return False
        requested = ledger.accounts.amounts.requested_by(state, variant)
        if not self.claims.is_admitted_at(ledger, state, placement, requested):
            self.waits_for_quota = True
            return False
        start(builder, state, placement)
        return True

    def _find(self, ledger: Ledger, spec: Job) -> Placement | None:
        placement = find(ledger.rooms(), spec, self.preferences)
        if placement is None and spec.elastic is not None and self.policy.elastic:
            sized = best_size(ledger.rooms(), spec, self.preferences)
            placement = None if sized is None else sized[1]
        return placement
