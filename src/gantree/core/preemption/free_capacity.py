"""Frees capacity for a pending gang that does not fit: which gangs shrink, move or stop, and the claim on their room.

The first means that suffices is used, from least harm to most:

    shrink        elastic gangs give members back: above their written size for any gang, below it for one that may
                  preempt them
    defragment    gangs move to other placements, if the policy applies such plans and the gain exceeds the cost
    reclaim       gangs stop that borrow the guarantee of the pending gang's queue, if it is within that guarantee, or
                  others of their queues in their place (`core.preemption.exchange`)
    preempt       gangs stop that the pending gang may preempt by priority or by order

Reclaim and preempt are one plan, in which gangs that borrow have the lowest rank. No gang is stopped before a proof
that the pending gang then fits at a certain placement and is admitted there. From then on a claim holds the room
(`Ledger.hold`), as its victims leave, so that no other job takes it. Room of gangs that stop anyway can be claimed,
too: otherwise a job further back would start on the part that is free now, and be preempted a moment later. Room of a
promise can be claimed by its own gang only.

A gang with `preemptible: false` may not hold nodes that cells of queues need (`core.queue.cell_usage`): it gets another
placement, or waits. If its own queue owns cells, it runs in these only (`core.cycle.cell_scheduling`), and frees
nothing here.

`planning.preemption.plan` chooses the victims, `core.preemption.candidates` finds the gangs that may be stopped, and
`core.queue.preemption_rules` holds the rules, also for claims.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import save_then_stop, start, stop
from gantree.core.preemption.candidates import (
    PreemptionRequest,
    ProjectedOccupancies,
    find_candidates,
    may_reclaim,
    overlaps_reservation,
    reclaimable_gangs,
)
from gantree.core.preemption.exchange import exchangeable_gangs, is_fair_exchange
from gantree.core.preemption.move_plans import cheapest_moves, defragmentation
from gantree.core.preemption.reclaimers import find_reclaimer
from gantree.core.queue.cell_usage import (
    any_cells,
    cell_domains_of,
    cell_view,
    keeps_cells_free,
    runs_in_cells_only,
)
from gantree.core.queue.held_capacity import usable_holds, without_holds
from gantree.core.queue.job_variants import running_variant
from gantree.core.queue.preemption_rules import claims_taken_over, rank_blocker
from gantree.core.queue.scaling import is_on_cordoned_node
from gantree.core.queue.slot_demands import SlotDemands
from gantree.model.facts import ClaimDropped, GangMoving, GangPreempted, RoomClaimed
from gantree.model.phases import StopCause
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.planning.cells.home import preferred_for_guests
from gantree.planning.defragmentation import MovePlan
from gantree.planning.elastic.shrink import ElasticGang, plan_shrink
from gantree.planning.preemption.plan import Plan, Victim, plan_preemption
from gantree.planning.preemption.trial import Admits
from gantree.topology.occupancy.occupancy import Occupancy

REPLAN_S, REPLAN_SHARE = 60.0, 0.125
"""Moves that do not pay yet are planned again after so many seconds, or this share of the wait so far, if longer."""


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """No capacity can be freed for a gang now.

    retry_at: the next moment, in seconds, at which one more gang may be stopped, or moves may pay; None: never.
    """

    retry_at: float | None = None


def free_capacity_for(
    builder: DecisionBuilder,
    request: PreemptionRequest,
    preferences: PlacementPreferences,
    occupancies: ProjectedOccupancies,
    demands: SlotDemands,
) -> NoCapacity | None:
    """Claim room for a gang and let the gangs there shrink, move or stop. It starts at once if none has to.

    Returns None where that was possible.
    """
    ledger, moves_at = builder.ledger, inf
    if runs_in_cells_only(ledger, request.state):
        return NoCapacity()
    projected = occupancies.of(ledger, request.state)
    if _admitted(request):
        if _shrink(builder, request, projected, preferences):
            return None
        moves_at = _defragment(builder, request, projected, preferences)
        if moves_at <= builder.now:
            return None
    return _preempt(builder, request, projected, demands, moves_at, preferences)


def _preempt(
    builder: DecisionBuilder,
    request: PreemptionRequest,
    projected: Occupancy,
    demands: SlotDemands,
    moves_at: float,
    preferences: PlacementPreferences,
) -> NoCapacity | None:
    """Stop gangs and claim their room. moves_at: when moves may pay."""
    ledger = builder.ledger
    candidates = find_candidates(ledger, request, builder.now)
    plan = _preemption_plan(ledger, request, projected, candidates.victims, preferences)
    plan = plan or _exchange_plan(builder, request, projected, preferences)
    if (
        plan is None
        or find_reclaimer(ledger, request, plan, projected, demands, builder.now) is not None
    ):
        moment = min(inf if candidates.retry_at is None else candidates.retry_at, moves_at)
        return NoCapacity(None if moment == inf else moment)
    if not _is_before_promise(
        ledger, request, plan.placement, [victim.owner for victim in plan.victims], builder.now
    ):
        return NoCapacity(ledger.reservations[request.state.job].starts_at)
    _carry_out(builder, request, plan, preferences)
    return None


def _exchange_plan(
    builder: DecisionBuilder,
    request: PreemptionRequest,
    projected: Occupancy,
    preferences: PlacementPreferences,
) -> Plan | None:
    """The cheapest preemption of gangs that borrow and of others in their place; None unless that is fair."""
    ledger, borrowing = builder.ledger, reclaimable_gangs(builder.ledger, request)
    exchanged = exchangeable_gangs(ledger, borrowing)
    if not exchanged:
        return None
    victims = find_candidates(ledger, request, builder.now, exchanged=exchanged).victims
    plan = _preemption_plan(ledger, request, projected, victims, preferences)
    gone = [victim.owner for victim in plan.victims] if plan is not None else []
    return plan if is_fair_exchange(ledger, gone, borrowing, exchanged) else None


def _preemption_plan(
    ledger: Ledger,
    request: PreemptionRequest,
    projected: Occupancy,
    victims: Sequence[Victim],
    preferences: PlacementPreferences,
) -> Plan | None:
    """The cheapest preemption at whose placement the gang is admitted, off the nodes that cells need if necessary."""
    admits = _admits(ledger, request)
    plan = plan_preemption(projected, request.spec, victims, preferences, admits)
    if plan is None or _admitted_with(ledger, request, plan):
        return plan
    if request.state.spec.preemptible or not any_cells(ledger):
        return None
    plan = plan_preemption(
        _without_cells(ledger, projected), request.spec, victims, preferences, admits
    )
    return plan if plan is not None and _admitted_with(ledger, request, plan) else None


def _without_cells(ledger: Ledger, projected: Occupancy) -> Occupancy:
    """The occupancy with the nodes that a cell needs out of use."""
    without, fabric = projected.copy(), projected.fabric
    open_to_all = preferred_for_guests(cell_view(ledger, cell_domains_of(ledger), 0.0))
    for node in np.flatnonzero(~open_to_all & without.usable_node).tolist():
        without.mark(fabric.nodes[node].name, usable=False, same_spares=True)
    return without


def _admitted_with(ledger: Ledger, request: PreemptionRequest, plan: Plan) -> bool:
    gone = [victim.owner for victim in plan.victims]
    return _admitted_at(ledger, request, plan.placement, gone)


def _admitted_at(
    ledger: Ledger, request: PreemptionRequest, placement: Placement, gone: Sequence[str] = ()
) -> bool:
    """Whether a gang is admitted at a placement once these owners have left: its GPU models are known only now."""
    accounts, state = ledger.accounts, request.state
    admission = accounts.projected_admission(state, accounts.amounts.held(placement), gone)
    return not admission.refused and keeps_cells_free(ledger, state, placement)


def _may_start_at(ledger: Ledger, request: PreemptionRequest, placement: Placement) -> bool:
    """Whether a gang is admitted at a placement now."""
    accounts, state = ledger.accounts, request.state
    admission = accounts.admission(state, accounts.amounts.held(placement))
    return not admission.refused and keeps_cells_free(ledger, state, placement)


def _is_before_promise(
    ledger: Ledger,
    request: PreemptionRequest,
    placement: Placement,
    owners: Sequence[str],
    now: float,
) -> bool:
    """Whether the room is free before the promised start of the gang, even if these gangs leave as late as they may."""
    reservation, grace_s = ledger.reservations.get(request.state.job), ledger.policy.grace_s
    if reservation is None or not reservation.promised or reservation.starts_at <= now:
        return True
    latest = [ledger.jobs[job].ends_at(grace_s) for job in gangs_leaving(ledger, placement)]
    for owner in owners:
        saves = ledger.jobs[owner].spec.checkpoint
        latest.append(now + grace_s + (saves.grace_s if saves else 0.0))
    return max(latest, default=0.0) <= reservation.starts_at


def _admitted(request: PreemptionRequest) -> bool:
    return request.admission.state != "refused"


def _admits(ledger: Ledger, request: PreemptionRequest) -> Admits | None:
    """A test whether the gang's queue admits it without these owners; None where it is admitted beside them."""
    if _admitted(request):
        return None
    accounts, state = ledger.accounts, request.state
    amounts = accounts.amounts.requested_by(state, request.spec)
    return lambda owners: not accounts.projected_admission(state, amounts, owners).refused


def _shrink(
    builder: DecisionBuilder,
    request: PreemptionRequest,
    projected: Occupancy,
    preferences: PlacementPreferences,
) -> bool:
    """Shrink elastic gangs, if that is enough."""
    ledger, policy = builder.ledger, builder.ledger.policy
    gangs = (
        list(_shrinkable_gangs(ledger, request, projected, builder.now)) if policy.elastic else []
    )
    plan = plan_shrink(projected, request.spec, gangs, preferences) if gangs else None
    if plan is None or not plan.shrunk or not _admitted_at(ledger, request, plan.placement):
        return False
    if not _is_before_promise(
        builder.ledger,
        request,
        plan.placement,
        [each.owner for each in plan.shrunk],
        builder.now,
    ):
        return False
    _claim(builder, request, plan.placement, tuple(each.owner for each in plan.shrunk))
    for each in plan.shrunk:
        move(builder, ledger.jobs[each.owner], each.placement, StopCause.RESIZED, request.state.job)
    return True


def _shrinkable_gangs(
    ledger: Ledger, request: PreemptionRequest, projected: Occupancy, now: float
) -> Iterator[ElasticGang]:
    """The elastic gangs that may give members back for this one, each with the smallest size to which it may shrink."""
    reclaimable = reclaimable_gangs(ledger, request)
    for other in ledger.holding.values():
        elastic = other.spec.elastic
        if elastic is None or other.leaving or other.moving is not None or other.placement is None:
            continue
        if not other.spec.preemptible:
            continue
        if overlaps_reservation(projected, other) or is_on_cordoned_node(ledger, other):
            continue  # it would restart there
        may_stop = (
            other.job in reclaimable or not rank_blocker(ledger, request.state, other, now)[0]
        )
        gang = running_variant(ledger, other)
        smallest = elastic.min if gang.elastic is None else gang.elastic.min
        least = smallest if may_stop else max(smallest, other.spec.members)
        if len(other.placement.members) > least:
            restart_gpu_s = other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus
            right = (float(may_stop), other.priority)
            yield ElasticGang(other.job, gang, other.placement, right, restart_gpu_s, least)


def _defragment(
    builder: DecisionBuilder,
    request: PreemptionRequest,
    projected: Occupancy,
    preferences: PlacementPreferences,
) -> float:
    """Move gangs to other placements, if the policy applies such plans and the gain exceeds the cost.

    Returns when moves pay, as far as is known: now if gangs move.
    """
    ledger, now = builder.ledger, builder.now
    if ledger.policy.defragment != "apply":
        return inf
    plan = defragmentation(ledger, request, projected, now, preferences)
    if plan is not None:
        return now if claim_and_move(builder, request, plan) else inf
    if request.state.job in ledger.reservations:  # the nearer its start, the less there is to gain
        return inf
    plan = cheapest_moves(ledger, request, projected, now, preferences, inf)
    if plan is None:
        return inf
    pays_after_s = plan.cost_gpu_s / max(1, request.spec.gpus)
    replan_s = max(REPLAN_S, (now - request.state.submitted_at) * REPLAN_SHARE)
    return max(request.state.submitted_at + pays_after_s, now + replan_s)


def claim_and_move(builder: DecisionBuilder, request: PreemptionRequest, plan: MovePlan) -> bool:
    """Claim a placement for a gang, and another one for each gang that moves. False where it may not (`may_claim`)."""
    if not may_claim(builder.ledger, request, plan, builder.now):
        return False
    _claim(builder, request, plan.placement, tuple(each.owner for each in plan.moves))
    for each in plan.moves:
        other = builder.ledger.jobs[each.owner]
        move(builder, other, each.placement, StopCause.MOVED, request.state.job)
    return True


def may_claim(ledger: Ledger, request: PreemptionRequest, plan: MovePlan, now: float) -> bool:
    """Whether the queue of a gang admits it at its place, and the moves end before its promised start."""
    owners = [each.owner for each in plan.moves]
    return _admitted_at(ledger, request, plan.placement) and _is_before_promise(
        ledger, request, plan.placement, owners, now
    )


def move(
    builder: DecisionBuilder,
    state: JobState,
    placement: Placement,
    cause: StopCause,
    by: str = "",
    *,
    at_home: bool = False,
    flees: str = "",
) -> None:
    """Move a gang: hold another placement for it, save a checkpoint and stop it.

    at_home: the placement is in a cell of its queue; a gang that is resized in a cell stays in it. flees: what is wrong
    with its present place, if it moves for that. A gang that saved a moment ago has nothing to save.
    """
    builder.record(
        GangMoving(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            placement=placement,
            cause=cause,
            by=by,
            at_home=at_home or (state.at_home and cause is StopCause.RESIZED),
            flees=flees,
        )
    )
    leave = stop if flees and state.checkpoint_at == builder.now else save_then_stop
    leave(builder, state, cause, builder.ledger.policy)


def _carry_out(
    builder: DecisionBuilder,
    request: PreemptionRequest,
    plan: Plan,
    preferences: PlacementPreferences,
) -> None:
    """Claim the room and stop the victims; start at once if only claims of other jobs were in the way."""
    ledger, state = builder.ledger, request.state
    _drop_outranked_claims(builder, state, plan.placement)
    if not plan.victims:
        with without_holds(ledger, usable_holds(ledger, state, builder.now)):
            placement = _free_place(ledger, request, plan, preferences)
            if placement is not None:
                start(builder, state, placement)
                return
    victims = tuple(victim.owner for victim in plan.victims)
    borrowing = reclaimable_gangs(ledger, request)
    reclaimable = {**borrowing, **exchangeable_gangs(ledger, borrowing)}
    preempts = any(owner not in reclaimable for owner in victims)
    counts = preempts and not may_reclaim(ledger, request)
    _claim(builder, request, plan.placement, victims, preempts=counts)
    by_order = ledger.policy.preemption.by == "order"
    return_within_s = ledger.policy.return_within_s(state.spec.queue)
    for owner in victims:
        other = ledger.jobs[owner]
        cause = "reclaim" if owner in reclaimable else "order" if by_order else "priority"
        builder.record(
            GangPreempted(
                at=builder.now, job=owner, attempt=other.attempt, by=state.job, cause=cause
            )
        )
        within_s = return_within_s if owner in reclaimable and return_within_s else inf
        save_then_stop(builder, other, StopCause.PREEMPTED, ledger.policy, within_s)


def _free_place(
    ledger: Ledger, request: PreemptionRequest, plan: Plan, preferences: PlacementPreferences
) -> Placement | None:
    """A free placement at which the gang is admitted: the best one, else the planned one."""
    rooms = ledger.rooms()
    placement = find(rooms, request.spec, preferences)
    if placement is not None and _may_start_at(ledger, request, placement):
        return placement
    if rooms.missing(plan.placement.members):
        return None
    return plan.placement if _may_start_at(ledger, request, plan.placement) else None


def _claim(
    builder: DecisionBuilder,
    request: PreemptionRequest,
    placement: Placement,
    victims: Sequence[str],
    *,
    preempts: bool = False,
) -> None:
    """Record the claim. Its victims are these, and the gangs that leave the placement anyway."""
    ledger = builder.ledger
    _drop_outranked_claims(builder, request.state, placement)
    leaving = gangs_leaving(ledger, placement)
    builder.record(
        RoomClaimed(
            at=builder.now,
            job=request.state.job,
            placement=placement,
            victims=(*victims, *leaving),
            preempts=preempts,
        )
    )


def _drop_outranked_claims(builder: DecisionBuilder, state: JobState, placement: Placement) -> None:
    """Drop the claims on nodes of the placement that give way to this job."""
    for job in claims_taken_over(builder.ledger, state, placement):
        builder.record(ClaimDropped(at=builder.now, job=job, reason=f"{state.job} goes first"))


def gangs_leaving(ledger: Ledger, placement: Placement) -> tuple[str, ...]:
    """The stopping gangs on the nodes of a placement, oldest placement first."""
    nodes = placement.nodes
    there = {
        state.job
        for state in ledger.leaving.values()
        if state.placement is not None
        and any(member.node in nodes for member in state.placement.members)
    }
    return tuple(job for job in ledger.holding if job in there) if there else ()
