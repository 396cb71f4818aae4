"""Making room for a gang that does not fit: who must give some up, and the claim that holds it meanwhile.

From least harm to most, as the first that suffices:

    shrink        elastic gangs give members back, above the size they were written with for anybody, below it for those
                  that may stop them
    defragment    gangs move to places of their own, where the policy applies such plans and the sum gains
    reclaim       gangs that run on what another queue is guaranteed, for a gang that is within its queue's guarantee
    preempt       gangs that the waiting one may stop by priority or by order

The last two are one plan, in which those that are reclaimed count as of less right. Nobody is asked before a proof
that the gang then fits and its queue admits it, and that at its very place. Room that is given up is held for its
claimant from the moment it is free (`Ledger.hold`), so nothing slips in between. Room that somebody leaves anyway can
be claimed too: otherwise a job further down the queue would take what is free now, and be preempted for it a moment
later. Room of a promised start is nobody's to claim but its own gang's.

A gang that can never be told to leave takes nothing that cells of queues need (`core.queue.cell_usage`): where the plan
would, it gets a place on nodes of which no cell needs anything, or waits. Where its own queue owns cells it runs in
these only (`core.cycle.cell_scheduling`), and nobody is asked.

Which victims do least harm is `planning.preemption.plan`; who may be asked at all is `core.preemption.candidates`, and
whose claims give way to whom, `core.queue.preemption_rules`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import save_then_stop, start
from gantree.core.preemption.candidates import (
    RoomToCome,
    Wanted,
    borrowers_for,
    is_entitled,
    is_on_reserved,
    whom_to_ask,
)
from gantree.core.preemption.reclaimers import owed_instead
from gantree.core.queue.cell_usage import (
    any_cells,
    cell_domains_of,
    only_at_home,
    seen,
    spares_cells,
)
from gantree.core.queue.held_capacity import lifted, passed_by
from gantree.core.queue.job_variants import running_variant
from gantree.core.queue.needs import Needs
from gantree.core.queue.preemption_rules import claims_overtaken, no_right, stoppable_at
from gantree.core.queue.scaling import stands_on_cordoned
from gantree.model.facts import ClaimDropped, GangMoving, GangPreempted, RoomClaimed
from gantree.model.phases import StopCause
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.preferences import PlacementPreferences
from gantree.planning.cells.home import preferred_for_guests
from gantree.planning.defragmentation import Movable, MovePlan, plan_defragment
from gantree.planning.elastic.shrink import ElasticGang, plan_shrink
from gantree.planning.preemption.plan import Plan, Victim, plan_preemption
from gantree.planning.preemption.trial import Admits
from gantree.topology.occupancy.occupancy import Occupancy

ASK_AGAIN_S, ASK_AGAIN_SHARE = 60.0, 0.125
"""Moves that do not gain yet are planned again after so many seconds, or so much of the wait so far, at the soonest."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Nobody makes room for a gang now. later is the next moment, in seconds, at which one more gang may be stopped, or
    moving some may gain; None: no such moment.
    """

    later: float | None = None


def make_room(
    builder: DecisionBuilder,
    wanted: Wanted,
    preferences: PlacementPreferences,
    rooms: RoomToCome,
    needs: Needs,
) -> NoRoom | None:
    """Claim room for a gang and ask those who hold it to give it up; start at once where nobody must be asked.

    Returns None where that was possible.
    """
    ledger, moves_at = builder.ledger, inf
    if only_at_home(ledger, wanted.state):
        return NoRoom()
    later = rooms.of(ledger, wanted.state)
    if _admitted(wanted):
        if _shrink(builder, wanted, later, preferences):
            return None
        moves_at = _move(builder, wanted, later, preferences)
        if moves_at <= builder.now:
            return None
    return _stop_others(builder, wanted, later, needs, moves_at, preferences)


def _stop_others(
    builder: DecisionBuilder,
    wanted: Wanted,
    later: Occupancy,
    needs: Needs,
    moves_at: float,
    preferences: PlacementPreferences,
) -> NoRoom | None:
    """Stop gangs for one, and claim their room; moves_at is when moving some may gain."""
    ledger = builder.ledger
    asked = whom_to_ask(ledger, wanted, builder.now)
    plan = _planned(ledger, wanted, later, asked.victims, preferences)
    if plan is None or owed_instead(ledger, wanted, plan, later, needs, builder.now) is not None:
        moment = min(inf if asked.later is None else asked.later, moves_at)
        return NoRoom(None if moment == inf else moment)
    if not _is_in_time(builder, wanted, plan.placement, [victim.owner for victim in plan.victims]):
        return NoRoom(ledger.reservations[wanted.state.job].starts_at)
    _stop_for(builder, wanted, plan, preferences)
    return None


def _planned(
    ledger: Ledger,
    wanted: Wanted,
    later: Occupancy,
    victims: Sequence[Victim],
    preferences: PlacementPreferences,
) -> Plan | None:
    """Whom to stop, such that the gang is admitted at its place; where it breaks up what cells need, another place."""
    admits = _admits(ledger, wanted)
    plan = plan_preemption(later, wanted.spec, victims, preferences, admits)
    if plan is None or _admitted_with(ledger, wanted, plan):
        return plan
    if wanted.state.spec.preemptible or not any_cells(ledger):
        return None
    plan = plan_preemption(_off_cells(ledger, later), wanted.spec, victims, preferences, admits)
    return plan if plan is not None and _admitted_with(ledger, wanted, plan) else None


def _off_cells(ledger: Ledger, later: Occupancy) -> Occupancy:
    """The same room, in which nodes that a cell needs something of are out of use."""
    left, fabric = later.copy(), later.fabric
    open_to_all = preferred_for_guests(seen(ledger, cell_domains_of(ledger), 0.0))
    for node in np.flatnonzero(~open_to_all & left.usable_node).tolist():
        left.mark(fabric.nodes[node].name, usable=False, same_spares=True)
    return left


def _admitted_with(ledger: Ledger, wanted: Wanted, plan: Plan) -> bool:
    gone = [victim.owner for victim in plan.victims]
    return _admitted_at(ledger, wanted, plan.placement, gone)


def _admitted_at(
    ledger: Ledger, wanted: Wanted, placement: Placement, gone: Sequence[str] = ()
) -> bool:
    """Whether a gang may claim a place that these owners leave: what it really holds is known only now."""
    accounts, state = ledger.accounts, wanted.state
    admission = accounts.projected_admission(state, accounts.amounts.held(placement), gone)
    return not admission.refused and spares_cells(ledger, state, placement)


def _may_start_at(ledger: Ledger, wanted: Wanted, placement: Placement) -> bool:
    """Whether a gang may hold a place at once."""
    accounts, state = ledger.accounts, wanted.state
    admission = accounts.admission(state, accounts.amounts.held(placement))
    return not admission.refused and spares_cells(ledger, state, placement)


def _is_in_time(
    builder: DecisionBuilder, wanted: Wanted, placement: Placement, owners: Sequence[str]
) -> bool:
    """Whether the room is free before the start that the gang was promised, however long it takes those to leave."""
    ledger = builder.ledger
    reservation, grace_s = ledger.reservations.get(wanted.state.job), ledger.policy.grace_s
    if reservation is None or not reservation.promised or reservation.starts_at <= builder.now:
        return True
    latest = [ledger.jobs[job].ends_at(grace_s) for job in leaving_there(ledger, placement)]
    for owner in owners:
        saves = ledger.jobs[owner].spec.checkpoint
        latest.append(builder.now + grace_s + (saves.grace_s if saves else 0.0))
    return max(latest, default=0.0) <= reservation.starts_at


def _admitted(wanted: Wanted) -> bool:
    return wanted.admission.state != "refused"


def _admits(ledger: Ledger, wanted: Wanted) -> Admits | None:
    """Whether the gang's queue lets it claim room when these owners are gone; None where it does anyway."""
    if _admitted(wanted):
        return None
    accounts, state = ledger.accounts, wanted.state
    amounts = accounts.amounts.asked_on(state, wanted.spec)
    return lambda owners: not accounts.projected_admission(state, amounts, owners).refused


def _shrink(
    builder: DecisionBuilder, wanted: Wanted, later: Occupancy, preferences: PlacementPreferences
) -> bool:
    """Let elastic gangs give members back, if that is enough."""
    ledger, policy = builder.ledger, builder.ledger.policy
    gangs = list(_elastic(ledger, wanted, later, builder.now)) if policy.elastic else []
    plan = plan_shrink(later, wanted.spec, gangs, preferences) if gangs else None
    if plan is None or not plan.shrunk or not _admitted_at(ledger, wanted, plan.placement):
        return False
    if not _is_in_time(builder, wanted, plan.placement, [each.owner for each in plan.shrunk]):
        return False
    _claim(builder, wanted, plan.placement, tuple(each.owner for each in plan.shrunk))
    for each in plan.shrunk:
        move(builder, ledger.jobs[each.owner], each.placement, StopCause.RESIZED, wanted.state.job)
    return True


def _elastic(ledger: Ledger, wanted: Wanted, later: Occupancy, now: float) -> Iterator[ElasticGang]:
    """Gangs that may give members back for this one, each down to the size that it keeps against it."""
    reclaimed = borrowers_for(ledger, wanted)
    for other in ledger.holding.values():
        elastic = other.spec.elastic
        if elastic is None or other.leaving or other.moving is not None or other.placement is None:
            continue
        if not other.spec.preemptible:
            continue
        if is_on_reserved(later, other) or stands_on_cordoned(ledger, other):
            continue  # it would start anew there
        superior = other.job in reclaimed or not no_right(ledger, wanted.state, other, now)[0]
        gang = running_variant(ledger, other)
        fewest = elastic.min if gang.elastic is None else gang.elastic.min
        least = fewest if superior else max(fewest, other.spec.members)
        if len(other.placement.members) > least:
            restart_gpu_s = other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus
            right = (float(superior), other.priority)
            yield ElasticGang(other.job, gang, other.placement, right, restart_gpu_s, least)


def _move(
    builder: DecisionBuilder, wanted: Wanted, later: Occupancy, preferences: PlacementPreferences
) -> float:
    """Move gangs to places of their own, where the policy says so and the sum gains.

    Returns from when on that gains, as far as can be said now: the present moment where they move.
    """
    ledger, now = builder.ledger, builder.now
    if ledger.policy.defragment != "apply":
        return inf
    plan = defragmentation(ledger, wanted, later, now, preferences)
    if plan is not None:
        return now if claim_and_move(builder, wanted, plan) else inf
    if wanted.state.job in ledger.reservations:  # the nearer its start, the less there is to gain
        return inf
    plan = _moves(ledger, wanted, later, now, preferences, inf)
    if plan is None:
        return inf
    worth_s = plan.cost_gpu_s / max(1, wanted.spec.gpus)
    again_s = max(ASK_AGAIN_S, (now - wanted.state.submitted_at) * ASK_AGAIN_SHARE)
    return max(wanted.state.submitted_at + worth_s, now + again_s)


def claim_and_move(builder: DecisionBuilder, wanted: Wanted, plan: MovePlan) -> bool:
    """The wanted gang claims its place, everybody who moves gets one of its own.

    False where that would be too late, or its queue does not admit it there.
    """
    if not _admitted_at(builder.ledger, wanted, plan.placement):
        return False
    if not _is_in_time(builder, wanted, plan.placement, [each.owner for each in plan.moves]):
        return False
    _claim(builder, wanted, plan.placement, tuple(each.owner for each in plan.moves))
    for each in plan.moves:
        other = builder.ledger.jobs[each.owner]
        move(builder, other, each.placement, StopCause.MOVED, wanted.state.job)
    return True


def defragmentation(
    ledger: Ledger, wanted: Wanted, later: Occupancy, now: float, preferences: PlacementPreferences
) -> MovePlan | None:
    """The plan that moves gangs for a waiting one, or None where none gains.

    It gains the time until the start that it was told; else as long as it has waited already, for want of better.
    """
    reservation = ledger.reservations.get(wanted.state.job)
    waits_s = (reservation.starts_at - now) if reservation else now - wanted.state.submitted_at
    gain_gpu_s = max(0.0, waits_s) * max(1, wanted.spec.gpus)
    return _moves(ledger, wanted, later, now, preferences, gain_gpu_s)


def _moves(
    ledger: Ledger,
    wanted: Wanted,
    later: Occupancy,
    now: float,
    preferences: PlacementPreferences,
    gain_gpu_s: float,
) -> MovePlan | None:
    if only_at_home(ledger, wanted.state):
        return None
    movable = [
        Movable(
            other.job,
            running_variant(ledger, other),
            other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus,
        )
        for other in ledger.holding.values()
        if other.running_at is not None
        and not other.leaving
        and other.moving is None
        and not other.at_home
        and other.spec.preemptible
        and stoppable_at(other, ledger.policy) <= now
    ]
    plan = plan_defragment(
        later,
        wanted.spec,
        movable,
        preferences,
        gain_gpu_s=gain_gpu_s,
        exact_s=ledger.policy.exact_s,
    )
    return plan if plan is not None and plan.moves else None  # nobody need move: it is no plan


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
    """Let a gang go on at another place of its own: that is held for it, and it saves and stops.

    at_home: in a cell of its queue; one that is there and changes its size stays there. flees: what is wrong where it
    is, if that is why.
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
    save_then_stop(builder, state, cause, builder.ledger.policy)


def _stop_for(
    builder: DecisionBuilder, wanted: Wanted, plan: Plan, preferences: PlacementPreferences
) -> None:
    """Claim the room and ask its holders to leave; start at once if only claims of others were in the way."""
    ledger, state = builder.ledger, wanted.state
    _drop_later_claims(builder, state, plan.placement)
    if not plan.victims:
        with lifted(ledger, passed_by(ledger, state, builder.now)):
            placement = _free_place(ledger, wanted, plan, preferences)
            if placement is not None:
                start(builder, state, placement)
                return
    victims = tuple(victim.owner for victim in plan.victims)
    reclaimed = borrowers_for(ledger, wanted)
    preempts = any(owner not in reclaimed for owner in victims)
    counts = preempts and not is_entitled(ledger, wanted)
    _claim(builder, wanted, plan.placement, victims, preempts=counts)
    by_order = ledger.policy.preemption.by == "order"
    for owner in victims:
        other = ledger.jobs[owner]
        cause = "reclaim" if owner in reclaimed else "order" if by_order else "priority"
        builder.record(
            GangPreempted(
                at=builder.now, job=owner, attempt=other.attempt, by=state.job, cause=cause
            )
        )
        save_then_stop(builder, other, StopCause.PREEMPTED, ledger.policy)


def _free_place(
    ledger: Ledger, wanted: Wanted, plan: Plan, preferences: PlacementPreferences
) -> Placement | None:
    """A place that is free now and at which the gang is admitted: the best, else the planned one."""
    rooms = ledger.rooms()
    placement = find(rooms, wanted.spec, preferences)
    if placement is not None and _may_start_at(ledger, wanted, placement):
        return placement
    if rooms.missing(plan.placement.members):
        return None
    return plan.placement if _may_start_at(ledger, wanted, plan.placement) else None


def _claim(
    builder: DecisionBuilder,
    wanted: Wanted,
    placement: Placement,
    victims: Sequence[str],
    *,
    preempts: bool = False,
) -> None:
    """Record the claim, on those who are asked and on those who leave the place anyway."""
    ledger = builder.ledger
    _drop_later_claims(builder, wanted.state, placement)
    leaving = leaving_there(ledger, placement)
    builder.record(
        RoomClaimed(
            at=builder.now,
            job=wanted.state.job,
            placement=placement,
            victims=(*victims, *leaving),
            preempts=preempts,
        )
    )


def _drop_later_claims(builder: DecisionBuilder, state: JobState, placement: Placement) -> None:
    """Let go of room that is held, on nodes of the place, for gangs whose claims give way to this one."""
    for job in claims_overtaken(builder.ledger, state, placement):
        builder.record(ClaimDropped(at=builder.now, job=job, reason=f"{state.job} goes first"))


def leaving_there(ledger: Ledger, placement: Placement) -> tuple[str, ...]:
    """Jobs that leave and hold something on a node of the place, in the order in which they took theirs."""
    nodes = placement.nodes
    there = {
        state.job
        for state in ledger.leaving.values()
        if state.placement is not None
        and any(member.node in nodes for member in state.placement.members)
    }
    return tuple(job for job in ledger.holding if job in there) if there else ()
