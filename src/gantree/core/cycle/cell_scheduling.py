"""Queues that own cells: before the walk of a pass, their jobs are placed in the cells, as in a private cluster.

A gang in a cell of its queue ("at home") is within the guarantee. Any other gang, a guest, may be stopped at any time,
like gangs that borrow. Before the walk, the jobs of each such queue that are not in its cells, pending ones and guests
alike, are placed there in the order of the queue. A guest whose placement can become a cell of its own queue stays;
another one moves. Guests of other queues that are in the way stop, whatever their minimum run time and eviction budget:
the guarantee outranks both.

Plans are made by `core.cycle.cell_plans`.
"""

from collections.abc import Iterator
from heapq import merge
from operator import attrgetter

from gantree.core.cycle.cell_plans import CellPlans
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.core.lifecycle.lifecycle import save_then_stop, start
from gantree.core.preemption.free_capacity import gangs_leaving, move
from gantree.core.queue.cell_usage import cell_view
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.held_capacity import without_holds
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
from gantree.planning.cells.home import (
    HomePlan,
    Rebind,
    at_home_in_place,
    releasable,
)
from gantree.policy.order import Position
from gantree.policy.rules import Policy

_REQUEUED_CAUSES = (StopCause.PREEMPTED, StopCause.DRAINED)
"""Stop causes after which a gang is pending again."""


class CellScheduler:
    """Places jobs in the cells of their queues, and binds and releases cells."""

    def __init__(self, policy: Policy, plans: CellPlans) -> None:
        self._policy, self._plans = policy, plans
        self._queues = tuple(rule.path for rule in policy.queues if rule.cells)

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
            if state.array and ledger.is_used_up(state.array):
                break  # its next elements are split before jobs behind it are considered

    def _closes_queue(self, ledger: Ledger, queue: str, state: JobState) -> bool:
        """Whether a job that does not fit its cells now closes its queue: in strict order, unless it can never fit."""
        if self._policy.backfill.overtake != "none" or not self._plans.may_ever_fit(
            ledger, queue, state
        ):
            return False
        return not ledger.accounts.limits(state, ledger.accounts.amounts.requested(state)).never

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
            stays = at_home_in_place(self._plans.view(ledger, builder.now), queue, state.job)
            if stays is not None:
                self._bind(builder, queue, stays)
                builder.record(GangAtHome(at=builder.now, job=state.job, attempt=state.attempt))
                return True
        plan = self._plans.plan(ledger, queue, state, builder.now)
        if plan is not None:
            self._place_in_cells(builder, queue, state, plan)
        return plan is not None

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
        idle = releasable(self._plans.view(ledger, builder.now))
        if idle and ledger.leaving:
            now = releasable(
                cell_view(ledger, self._plans.domains(ledger), builder.now, leaving_gone=False)
            )
            idle = tuple(cell for cell in idle if cell in now)
        for cell in idle:
            builder.record(
                CellReleased(at=builder.now, queue=cell.queue, tier=cell.tier, number=cell.number)
            )


def _is_free(ledger: Ledger, placement: Placement) -> bool:
    """Whether a placement is free apart from reservations: a job in its cells may use these."""
    with without_holds(ledger, [RESERVATION + job for job in ledger.reservations]) as rooms:
        return not rooms.missing(placement.members)
