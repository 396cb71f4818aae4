"""Queues that own cells: before the walk of a pass, their jobs are placed in the cells, as in a private cluster.

A gang in a cell of its queue ("at home") is within the guarantee. Any other gang, a guest, may be stopped at any time,
like gangs that borrow. Before the walk, the jobs of each such queue that are not in its cells, pending ones and guests
alike, are placed there in the order of the queue. A guest whose placement can become a cell of its own queue stays;
another one moves. Guests of other queues that are in the way stop, whatever their minimum run time and eviction budget:
the guarantee outranks both.

Guests and claims of the job's own queue stop or drop, too, but not for a job that they could preempt in turn: within
one queue its order decides, and the two would stop each other endlessly. Nor does the claim of an earlier job that may
run in the cells.

Which domains become cells, and what keeps them safe, is in `planning.cells.home`; how the cells stand in the ledger is
in `core.queue.cell_usage`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import merge
from operator import attrgetter

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.core.lifecycle.lifecycle import save_then_stop, start
from gantree.core.preemption.free_capacity import gangs_leaving, move
from gantree.core.queue.cell_usage import any_cells, cell_domains_of, cell_view, keeps_cells_free
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.held_capacity import without_holds
from gantree.core.queue.preemption_rules import rank_blocker
from gantree.model.facts import (
    CellBound,
    CellReleased,
    ClaimDropped,
    GangAtHome,
    GangPreempted,
    RoomClaimed,
)
from gantree.model.phases import Phase, StopCause
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.cells.home import (
    CellDomains,
    CellView,
    HomePlan,
    Rebind,
    at_home_in_place,
    home,
    releasable,
    view_of,
)
from gantree.policy.cells import Cell
from gantree.policy.order import Position
from gantree.policy.rules import Policy
from gantree.topology.fabric.fabric import Fabric

_REQUEUED_CAUSES = (StopCause.PREEMPTED, StopCause.DRAINED)
"""Stop causes after which a gang is pending again."""


class CellScheduler:
    """The cells of a policy on the present fabric.

    _fits_empty_cells caches, by queue, signature and size, whether the empty cells would hold a job. _cached_view is
    the view of all cells, valid at _view_at. Views without some gang are not cached: they serve one job.
    """

    def __init__(self, policy: Policy, preferences: PlacementPreferences) -> None:
        self._policy = policy
        self._preferences = preferences
        self._fabric: Fabric | None = None
        self._cell_domains: CellDomains | None = None
        self._queues = tuple(rule.path for rule in policy.queues if rule.cells)
        self._fits_empty_cells: dict[tuple[str, int, int], bool] = {}
        self._cached_view: CellView | None = None
        self._view_at = (-1, 0.0)

    def run(self, builder: DecisionBuilder) -> None:
        """Release idle cells, then place the jobs of each queue in its cells."""
        if not self._queues:
            return
        self._release(builder)
        facts = -1
        while len(builder.facts) != facts:  # a gang that has moved may leave room to an earlier one
            facts = len(builder.facts)
            for queue in self._queues:
                self._schedule_queue(builder, queue)

    def _schedule_queue(self, builder: DecisionBuilder, queue: str) -> None:
        """Place the jobs of a queue in its cells, in its order."""
        ledger = builder.ledger
        for job in self._outside_cells(ledger, queue, builder.now):
            state = ledger.jobs[job]
            if not self._schedule(builder, queue, state) and self._closes_queue(
                ledger, queue, state
            ):
                break

    def keeps_cells_free(self, ledger: Ledger, state: JobState, placement: Placement) -> bool:
        """As `cell_usage.keeps_cells_free`, with the cached domains of cells."""
        return keeps_cells_free(ledger, state, placement, self._cell_domains_of(ledger))

    # ----- caches

    def _cell_domains_of(self, ledger: Ledger) -> CellDomains:
        """The domains of cells on the present fabric."""
        fabric = ledger.rooms().fabric
        if self._cell_domains is None or self._fabric is not fabric:
            self._fabric = fabric
            self._cell_domains = cell_domains_of(ledger)
            self._fits_empty_cells.clear()
            self._cached_view = None
        return self._cell_domains

    def _closes_queue(self, ledger: Ledger, queue: str, state: JobState) -> bool:
        """Whether a job that does not fit its cells now closes its queue: in strict order, unless it can never fit."""
        if self._policy.backfill.overtake != "none" or not self.may_ever_fit(ledger, queue, state):
            return False
        return not ledger.accounts.limits(state, ledger.accounts.amounts.requested(state)).never

    def may_ever_fit(self, ledger: Ledger, queue: str, state: JobState) -> bool:
        """Whether the empty cells of a queue would hold a job."""
        cell_domains, spec = self._cell_domains_of(ledger), state.present
        key = queue, state.signature, spec.members
        if key not in self._fits_empty_cells:
            empty = view_of(ledger.rooms().emptied(), cell_domains, {}, {}, {})
            self._fits_empty_cells[key] = home(empty, queue, spec, self._preferences) is not None
        return self._fits_empty_cells[key]

    # ----- one job

    def _view(
        self,
        ledger: Ledger,
        now: float,
        without: tuple[str, ...] = (),
        protected: frozenset[str] = frozenset(),
    ) -> CellView:
        """The cells once stopping gangs and these have left. Claims and reservations count as guests."""
        cell_domains = self._cell_domains_of(ledger)
        if without or protected:
            return cell_view(ledger, cell_domains, now, without, protected)
        if self._cached_view is None or self._view_at != (ledger.applied, now):
            self._cached_view, self._view_at = (
                cell_view(ledger, cell_domains, now),
                (ledger.applied, now),
            )
        return self._cached_view

    def _outside_cells(self, ledger: Ledger, queue: str, now: float) -> Iterator[str]:
        """The jobs of a queue that are not in its cells, in its order: guests, and eligible pending jobs.

        Whether a pending job is eligible is tested one by one, as most often only the first few are placed.
        """
        order, tree = ledger.accounts.order, ledger.accounts.tree
        nodes = [node for node in ledger.waiting.queues if tree.queue[node] == queue]
        waiting = [map(attrgetter("position"), [*ledger.waiting.in_queue(node)]) for node in nodes]
        guests = [
            Position(order.key(state.order_factors(now)), state.seq, state.job)
            for state in ledger.holding.values()
            if state.spec.queue == queue
            and not state.at_home
            and state.moving is None
            and (not state.leaving or state.stop_cause in _REQUEUED_CAUSES)
        ]
        claims, are_guests = frozenset(ledger.claims), {position.job for position in guests}
        for _, _, job in merge(*waiting, sorted(guests)):
            if job in are_guests or (job not in claims and eligible(ledger, ledger.jobs[job], now)):
                yield job

    def _schedule(self, builder: DecisionBuilder, queue: str, state: JobState) -> bool:
        """Place one job in the cells of its queue; False where these have no room for it."""
        ledger = builder.ledger
        if state.leaving:  # it will be pending again: no later job goes before it
            return False
        if state.phase is not Phase.PENDING:
            stays = at_home_in_place(self._view(ledger, builder.now), queue, state.job)
            if stays is not None:
                self._bind(builder, queue, stays)
                builder.record(GangAtHome(at=builder.now, job=state.job, attempt=state.attempt))
                return True
        plan = self.plan(ledger, queue, state, builder.now)
        if plan is not None:
            self._place_in_cells(builder, queue, state, plan)
        return plan is not None

    def plan(self, ledger: Ledger, queue: str, state: JobState, now: float) -> HomePlan | None:
        """A placement of a job in the cells of its queue, without protected gangs as victims; None where there is none.

        The limits of its queue apply here, too.
        """
        plan = self._find(ledger, queue, state, now)
        if plan is None:
            return None
        gone = [owner for owner in (state.job, *plan.evict) if owner in ledger.holding]
        amounts = ledger.accounts.amounts.held(plan.placement)
        return None if ledger.accounts.limits(state, amounts, gone).refused else plan

    def _find(self, ledger: Ledger, queue: str, state: JobState, now: float) -> HomePlan | None:
        without = () if state.phase is Phase.PENDING else (state.job,)
        plan = home(self._view(ledger, now, without), queue, state.present, self._preferences)
        if plan is None or not self._protected(ledger, state, plan.evict, now):
            return plan
        claims = (CLAIM + job for job in ledger.claims)
        protected = self._protected(ledger, state, (*claims, *ledger.holding), now)
        plan = home(
            self._view(ledger, now, without, protected), queue, state.present, self._preferences
        )
        return plan if plan is not None and protected.isdisjoint(plan.evict) else None

    def _protected(
        self, ledger: Ledger, state: JobState, owners: Iterable[str], now: float
    ) -> frozenset[str]:
        """The gangs and claims, among these, of a job's own queue that do not stop for it."""
        protected: list[str] = []
        for owner in owners:
            other = ledger.jobs.get(owner.removeprefix(CLAIM))
            if other is None or other is state or other.spec.queue != state.spec.queue:
                continue
            pending = _as_pending(ledger, other, now)
            keeps = owner.startswith(CLAIM) and self._keeps_its_claim(ledger, state, pending, now)
            if keeps or not rank_blocker(ledger, pending, state, now)[0]:
                protected.append(owner)
        return frozenset(protected)

    def _keeps_its_claim(
        self, ledger: Ledger, state: JobState, other: JobState, now: float
    ) -> bool:
        """Whether another job of the queue is earlier, and may run in the cells as soon as it has what it claims."""
        before = ledger.accounts.goes_before(other, _as_pending(ledger, state, now))
        return before and self.may_ever_fit(ledger, state.spec.queue, other)

    def _place_in_cells(
        self, builder: DecisionBuilder, queue: str, state: JobState, plan: HomePlan
    ) -> None:
        """Bind the cells of a plan, and start its job there, or claim the placement if guests have to stop first."""
        ledger = builder.ledger
        self._bind(builder, queue, plan.bind)
        evicted = [owner for owner in plan.evict if owner in ledger.holding]
        for owner in plan.evict:
            if owner.startswith(CLAIM):
                self._drop_claim(builder, owner.removeprefix(CLAIM), state)
        if state.phase is not Phase.PENDING:
            move(builder, state, plan.placement, StopCause.MOVED, at_home=True)
        elif not evicted and _is_free(ledger, plan.placement):
            start(builder, state, plan.placement, at_home=True)
        else:
            place = plan.placement
            victims = (*evicted, *gangs_leaving(ledger, place))
            builder.record(
                RoomClaimed(
                    at=builder.now, job=state.job, placement=place, victims=victims, at_home=True
                )
            )
        for owner in evicted:
            self._preempt_guest(builder, ledger.jobs[owner], state)

    def _preempt_guest(self, builder: DecisionBuilder, guest: JobState, state: JobState) -> None:
        builder.record(
            GangPreempted(
                at=builder.now,
                job=guest.job,
                attempt=guest.attempt,
                by=state.job,
                cause="reclaim",
            )
        )
        save_then_stop(builder, guest, StopCause.PREEMPTED, self._policy)

    def _drop_claim(self, builder: DecisionBuilder, job: str, state: JobState) -> None:
        reason = f"{state.job} goes home"
        builder.record(ClaimDropped(at=builder.now, job=job, reason=reason))

    # ----- cells

    def _bind(self, builder: DecisionBuilder, queue: str, cells: tuple[Rebind, ...]) -> None:
        for tier, number, domain in cells:
            builder.record(
                CellBound(at=builder.now, queue=queue, tier=tier, number=number, domain=domain)
            )

    def _release(self, builder: DecisionBuilder) -> None:
        """Release cells without a gang, not even a stopping one, and without a claim."""
        ledger = builder.ledger
        if not ledger.bound:
            return
        idle = releasable(self._view(ledger, builder.now))
        if idle and ledger.leaving:
            now = releasable(
                cell_view(ledger, self._cell_domains_of(ledger), builder.now, leaving_gone=False)
            )
            idle = tuple(cell for cell in idle if cell in now)
        for cell in idle:
            builder.record(
                CellReleased(at=builder.now, queue=cell.queue, tier=cell.tier, number=cell.number)
            )


def lost_cells(ledger: Ledger) -> tuple[Cell, ...]:
    """The cells of all queues without a domain now: nodes are out of use, or hold gangs that are never preempted."""
    if ledger.occupancy is None or not any_cells(ledger):
        return ()
    return cell_view(ledger, cell_domains_of(ledger), 0.0).lost


def refused_in_cells(ledger: Ledger, state: JobState, now: float) -> Refused | None:
    """Why a gang that runs in cells only does not start there; None where it would."""
    queue, cells = state.spec.queue, CellScheduler(ledger.policy, DEFAULT_PREFERENCES)
    if cells.plan(ledger, queue, state, now) is not None:
        return None
    owned = next(rule.cells for rule in ledger.policy.queues if rule.path == queue)
    in_words = ", ".join(f"{tier}: {count}" for tier, count in owned)
    never = not cells.may_ever_fit(ledger, queue, state)
    why = "would not hold it if they were empty" if never else "have no room for it now"
    rule = f"is never preempted, so it runs in the cells of its queue only ({in_words}), and these"
    return Refused(Gate.QUOTA, f"Waiting: {rule} {why}.", never=never)


def never_fits_cells(ledger: Ledger, state: JobState) -> bool:
    """Whether the empty cells of its queue would not hold a job."""
    return not CellScheduler(ledger.policy, DEFAULT_PREFERENCES).may_ever_fit(
        ledger, state.spec.queue, state
    )


def _is_free(ledger: Ledger, placement: Placement) -> bool:
    """Whether a placement is free apart from reservations: a job in its cells may use these."""
    with without_holds(ledger, [RESERVATION + job for job in ledger.reservations]) as rooms:
        return not rooms.missing(placement.members)


def _as_pending(ledger: Ledger, other: JobState, now: float) -> JobState:
    """A job with the position that it would have if it were pending again."""
    if other.phase is Phase.PENDING:
        return other
    key = ledger.accounts.order.key(other.order_factors(now))
    return replace(other, position=Position(key, other.seq, other.job))
