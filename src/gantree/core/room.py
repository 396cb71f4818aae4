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

A gang that can never be told to leave takes nothing that cells of queues need (`core.guests`): where the plan would, it
gets a place on nodes of which no cell needs anything, or waits. Where its own queue owns cells it runs in these only
(`core.homes`), and nobody is asked.

Which victims do least harm is `planning.preempt`; who may be asked at all, and whose claims give way to whom, is
`core.rights`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from gantree.core.draft import Draft
from gantree.core.guests import any_cells, book_of, owns_cells, seen, spares_cells
from gantree.core.holds import lifted, outranks, passed_by
from gantree.core.ledger import BOOKING, CLAIM, Ledger
from gantree.core.lifecycle import save_then_stop, start
from gantree.core.rights import (  # fmt: skip
    borrowers,
    harm_of,
    no_right,
    objection,
    overrules,
    standing,
    stoppable_at,
)
from gantree.core.state import JobState
from gantree.core.ways import as_it_runs
from gantree.model.facts import ClaimDropped, GangMoving, GangPreempted, RoomClaimed
from gantree.model.jobs import Job
from gantree.model.phases import StopCause
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.search import find
from gantree.placement.taste import Taste
from gantree.planning.cells import preferred_for_guests
from gantree.planning.defragment import Movable, MovePlan, plan_defragment
from gantree.planning.preempt import Forbidden, Plan, Victim, plan_preemption
from gantree.planning.preempt_trial import Admits
from gantree.planning.shrink import ElasticGang, plan_shrink
from gantree.policy.admission import Admission
from gantree.topology.occupancy import Occupancy

ASK_AGAIN_S, ASK_AGAIN_SHARE = 60.0, 0.125
"""Moves that do not gain yet are planned again after so many seconds, or so much of the wait so far, at the soonest."""
BORROWS, OWED = 0.0, 1.0
"""By what right a gang stays, first of all: above what its queue is guaranteed, or within it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A gang that does not fit, as it asks for room: what its queue says to it, and where it may not look.

    kept are gangs that stay because a start is reserved on their room which this gang may not put off.
    """

    state: JobState
    spec: Job
    admission: Admission
    kept: frozenset[str]

    @classmethod
    def of(cls, ledger: Ledger, state: JobState, spec: Job, admission: Admission) -> "Wanted":
        """The gang, with who must stay whatever it asks."""
        reserved = [
            booking.placement
            for job, booking in ledger.bookings.items()
            if not outranks(ledger, state, job)
        ]
        kept = in_the_way(ledger.holding.values(), reserved) if reserved else ()
        return cls(state, spec, admission, frozenset(kept))


@dataclass(frozen=True, slots=True)
class Asked:
    """Who may be stopped for a gang, who not and why, and when the next one may be (None: no such moment)."""

    victims: tuple[Victim, ...]
    forbidden: tuple[Forbidden, ...]
    later: float | None


def whom_to_ask(ledger: Ledger, wanted: Wanted, now: float, *, everybody: bool = False) -> Asked:
    """The gangs that may be stopped for this one; where everybody, also all others, and why each may not."""
    victims, forbidden, later = [], [], inf
    reclaimed = _borrowers(ledger, wanted)
    for other in ledger.holding.values():
        if other.leaving or other.moving is not None or other.job == wanted.state.job:
            continue
        if not everybody and not _concerns(ledger, wanted, other, reclaimed):
            continue
        because, moment = _objection(ledger, wanted, other, reclaimed, now)
        if not because:
            victims.append(_victim(ledger, wanted, other, reclaimed, now))
        elif everybody:
            victim = _victim(ledger, wanted, other, reclaimed, now)
            forbidden.append(Forbidden(victim, because))
        later = min(later, moment) if because else later
    return Asked(tuple(victims), tuple(forbidden), None if later == inf else later)


def _borrowers(ledger: Ledger, wanted: Wanted) -> frozenset[str]:
    """Jobs that run on what the gang's queue is guaranteed."""
    if not wanted.admission.takes_back or not ledger.accounts.is_guaranteed(wanted.state.queue):
        return frozenset()
    return frozenset(borrowers(ledger, wanted.state.queue))


def _concerns(ledger: Ledger, wanted: Wanted, other: JobState, reclaimed: frozenset[str]) -> bool:
    """Whether a gang might ever be stopped for this one, as far as that is quickly told."""
    rules, state = ledger.policy.preemption, wanted.state
    if other.job in reclaimed or rules.by == "order":
        return True
    if rules.by == "none":
        return False
    alike = other.priority == state.priority and other.queue == state.queue
    return other.priority < state.priority or (alike and rules.gain > 0)


def _objection(
    ledger: Ledger, wanted: Wanted, other: JobState, reclaimed: frozenset[str], now: float
) -> tuple[str, float]:
    """Why a gang may not be stopped ("" if it may), and from when on it may be (inf: never)."""
    if not other.spec.preemptible:
        return "non-preemptible", inf
    if other.job in wanted.kept:
        return "promise", inf
    if other.job in reclaimed:
        return "", now
    return objection(ledger, wanted.state, other, now)


def _victim(
    ledger: Ledger, wanted: Wanted, other: JobState, reclaimed: frozenset[str], now: float
) -> Victim:
    owed = BORROWS if other.job in reclaimed else OWED * ledger.accounts.is_owed(other)
    if ledger.policy.preemption.by == "order":
        right: tuple[float, ...] = (owed, *(-number for number in standing(ledger, other, now)))
    else:
        right = (owed, other.priority)
    harm_gpu_s = harm_of(ledger, other, now)
    return Victim(other.job, other.priority, harm_gpu_s, other.seq, right)


def room_to_come(ledger: Ledger, state: JobState) -> Occupancy:
    """The occupancy when everyone who leaves has left, with the claims whole that do not give way to the job.

    The other claims do not count: they were made before it arrived. What it may pass itself is free; reserved starts
    that it may not put off hold of the room that is left by then as much as they can.
    """
    later = ledger.rooms().copy()
    passed = [job for job in ledger.bookings if outranks(ledger, state, job)]
    claims = (CLAIM + job for job in ledger.claims)
    for owner in (*ledger.leaving, *claims, *(BOOKING + job for job in passed)):
        later.give_back(owner)
    for job, claim in ledger.claims.items():
        if not overrules(ledger, state, ledger.jobs[job]):
            later.take_free(CLAIM + job, claim.placement.members)
    for job, booking in ledger.bookings.items():
        if job not in passed:
            later.take_free(BOOKING + job, booking.placement.members)
    return later


def in_the_way(gangs: Iterable[JobState], places: Iterable[Placement]) -> Iterator[str]:
    """Those of some gangs that use a GPU of one of these places, whole or in part."""
    reserved: dict[str, set[int]] = {}
    for place in places:
        for member in place.members:
            reserved.setdefault(member.node, set()).update(_devices(member))
    for gang in gangs:
        if gang.placement is not None and any(
            member.node in reserved and not reserved[member.node].isdisjoint(_devices(member))
            for member in gang.placement.members
        ):
            yield gang.job


def _devices(member: MemberPlacement) -> tuple[int, ...]:
    """The GPUs that a member uses, whole or in part; -1, the node itself, for one without any."""
    return (*member.gpus, *member.parts) or (-1,)


# ----- the ladder


def make_room(draft: Draft, wanted: Wanted, taste: Taste) -> tuple[bool, float | None]:
    """Claim room for a gang and ask those who hold it to give it up; start at once where nobody must be asked.

    Returns whether that was possible; if not, the next moment, in seconds, at which one more gang may be stopped, or
    moving some may gain.
    """
    ledger, moves_at = draft.ledger, inf
    if _only_at_home(ledger, wanted):
        return False, None
    later = room_to_come(ledger, wanted.state)
    if _admitted(wanted):
        if _shrink(draft, wanted, later, taste):
            return True, None
        moves_at = _move(draft, wanted, later, taste)
        if moves_at <= draft.now:
            return True, None
    asked = whom_to_ask(ledger, wanted, draft.now)
    plan = _planned(ledger, wanted, later, asked.victims, taste)
    if plan is None:
        moment = min(inf if asked.later is None else asked.later, moves_at)
        return False, None if moment == inf else moment
    if not _is_in_time(draft, wanted, plan.placement, [victim.owner for victim in plan.victims]):
        return False, None
    _stop_for(draft, wanted, plan, taste)
    return True, None


def _only_at_home(ledger: Ledger, wanted: Wanted) -> bool:
    """Whether a gang runs in the cells of its queue or not at all: elsewhere it might have to leave, and never does."""
    return not wanted.state.spec.preemptible and owns_cells(ledger, wanted.state.spec.queue)


def _planned(
    ledger: Ledger, wanted: Wanted, later: Occupancy, victims: Sequence[Victim], taste: Taste
) -> Plan | None:
    """Whom to stop, such that the gang is admitted at its place; where it breaks up what cells need, another place."""
    admits = _admits(ledger, wanted)
    plan = plan_preemption(later, wanted.spec, victims, taste, admits)
    if plan is None or _admitted_with(ledger, wanted, plan):
        return plan
    if wanted.state.spec.preemptible or not any_cells(ledger):
        return None
    plan = plan_preemption(_off_cells(ledger, later), wanted.spec, victims, taste, admits)
    return plan if plan is not None and _admitted_with(ledger, wanted, plan) else None


def _off_cells(ledger: Ledger, later: Occupancy) -> Occupancy:
    """The same room, in which nodes that a cell needs something of are out of use."""
    left, fabric = later.copy(), later.fabric
    open_to_all = preferred_for_guests(seen(ledger, book_of(ledger), 0.0))
    for node in np.flatnonzero(~open_to_all & left.usable_node).tolist():
        left.mark(fabric.nodes[node].name, usable=False)
    return left


def _admitted_with(ledger: Ledger, wanted: Wanted, plan: Plan) -> bool:
    gone = [victim.owner for victim in plan.victims]
    return _admitted_at(ledger, wanted, plan.placement, gone)


def _admitted_at(
    ledger: Ledger, wanted: Wanted, placement: Placement, gone: Sequence[str] = ()
) -> bool:
    """Whether a gang may hold a place when these owners are gone: what it really holds is known only now."""
    accounts, state = ledger.accounts, wanted.state
    admission = accounts.admission(state, accounts.held(placement), gone)
    return not admission.refused and spares_cells(ledger, state, placement)


def _is_in_time(draft: Draft, wanted: Wanted, placement: Placement, owners: Sequence[str]) -> bool:
    """Whether the room is free before the start that the gang was promised, however long it takes those to leave."""
    ledger = draft.ledger
    booking, grace_s = ledger.bookings.get(wanted.state.job), ledger.policy.grace_s
    if booking is None or not booking.promised or booking.starts_at <= draft.now:
        return True
    leaving = [ledger.jobs[job] for job in _holders(ledger, placement) if ledger.jobs[job].leaving]
    latest = [state.ends_at(grace_s) for state in leaving]
    for owner in owners:
        saves = ledger.jobs[owner].spec.checkpoint
        latest.append(draft.now + grace_s + (saves.grace_s if saves else 0.0))
    return max(latest, default=0.0) <= booking.starts_at


def _admitted(wanted: Wanted) -> bool:
    return wanted.admission.state != "refused"


def _admits(ledger: Ledger, wanted: Wanted) -> Admits | None:
    """Whether the gang's queue admits it when these owners are gone; None where it does anyway."""
    if _admitted(wanted):
        return None
    accounts, state = ledger.accounts, wanted.state
    amounts = accounts.asked_on(state, wanted.spec)
    return lambda owners: not accounts.admission(state, amounts, owners).refused


def _shrink(draft: Draft, wanted: Wanted, later: Occupancy, taste: Taste) -> bool:
    """Let elastic gangs give members back, if that is enough."""
    ledger, policy = draft.ledger, draft.ledger.policy
    gangs = list(_elastic(ledger, wanted, draft.now)) if policy.elastic else []
    plan = plan_shrink(later, wanted.spec, gangs, taste) if gangs else None
    if plan is None or not plan.shrunk or not _admitted_at(ledger, wanted, plan.placement):
        return False
    if not _is_in_time(draft, wanted, plan.placement, [each.owner for each in plan.shrunk]):
        return False
    _claim(draft, wanted, plan.placement, tuple(each.owner for each in plan.shrunk))
    for each in plan.shrunk:
        move(draft, ledger.jobs[each.owner], each.placement, StopCause.RESIZED, wanted.state.job)
    return True


def _elastic(ledger: Ledger, wanted: Wanted, now: float) -> Iterator[ElasticGang]:
    """Gangs that may give members back for this one, each down to the size that it keeps against it."""
    reclaimed = _borrowers(ledger, wanted)
    for other in ledger.holding.values():
        elastic = other.spec.elastic
        if elastic is None or other.leaving or other.moving is not None or other.placement is None:
            continue
        if other.job in wanted.kept or not other.spec.preemptible:
            continue
        superior = other.job in reclaimed or not no_right(ledger, wanted.state, other, now)[0]
        gang = as_it_runs(ledger, other)
        fewest = elastic.min if gang.elastic is None else gang.elastic.min
        least = fewest if superior else max(fewest, other.spec.members)
        if len(other.placement.members) > least:
            restart_gpu_s = other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus
            right = (float(superior), other.priority)
            yield ElasticGang(other.job, gang, other.placement, right, restart_gpu_s, least)


def _move(draft: Draft, wanted: Wanted, later: Occupancy, taste: Taste) -> float:
    """Move gangs to places of their own, where the policy says so and the sum gains.

    Returns from when on that gains, as far as can be said now: the present moment where they move.
    """
    ledger, now = draft.ledger, draft.now
    if ledger.policy.defragment != "apply":
        return inf
    plan = defragmentation(ledger, wanted, later, now, taste)
    if plan is not None:
        return now if claim_and_move(draft, wanted, plan) else inf
    if wanted.state.job in ledger.bookings:  # the nearer its start, the less there is to gain
        return inf
    plan = _moves(ledger, wanted, later, now, taste, inf)
    if plan is None:
        return inf
    worth_s = plan.cost_gpu_s / max(1, wanted.spec.gpus)
    again_s = max(ASK_AGAIN_S, (now - wanted.state.submitted_at) * ASK_AGAIN_SHARE)
    return max(wanted.state.submitted_at + worth_s, now + again_s)


def claim_and_move(draft: Draft, wanted: Wanted, plan: MovePlan) -> bool:
    """The wanted gang claims its place, everybody who moves gets one of its own.

    False where that would be too late, or its queue does not admit it there.
    """
    if not _admitted_at(draft.ledger, wanted, plan.placement):
        return False
    if not _is_in_time(draft, wanted, plan.placement, [each.owner for each in plan.moves]):
        return False
    _claim(draft, wanted, plan.placement, tuple(each.owner for each in plan.moves))
    for each in plan.moves:
        other = draft.ledger.jobs[each.owner]
        move(draft, other, each.placement, StopCause.MOVED, wanted.state.job)
    return True


def defragmentation(
    ledger: Ledger, wanted: Wanted, later: Occupancy, now: float, taste: Taste
) -> MovePlan | None:
    """The plan that moves gangs for a waiting one, or None where none gains.

    It gains the time until the start that it was told; else as long as it has waited already, for want of better.
    """
    booking = ledger.bookings.get(wanted.state.job)
    waits_s = (booking.starts_at - now) if booking else now - wanted.state.submitted_at
    gain_gpu_s = max(0.0, waits_s) * max(1, wanted.spec.gpus)
    return _moves(ledger, wanted, later, now, taste, gain_gpu_s)


def _moves(
    ledger: Ledger, wanted: Wanted, later: Occupancy, now: float, taste: Taste, gain_gpu_s: float
) -> MovePlan | None:
    if _only_at_home(ledger, wanted):
        return None
    movable = [
        Movable(
            other.job,
            as_it_runs(ledger, other),
            other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus,
        )
        for other in ledger.holding.values()
        if other.running_at is not None
        and not other.leaving
        and other.moving is None
        and not other.at_home
        and other.spec.preemptible
        and other.job not in wanted.kept
        and stoppable_at(other, ledger.policy) <= now
    ]
    plan = plan_defragment(
        later,
        wanted.spec,
        movable,
        taste,
        gain_gpu_s=gain_gpu_s,
        exact_s=ledger.policy.exact_s,
    )
    return plan if plan is not None and plan.moves else None  # nobody need move: it is no plan


def move(
    draft: Draft,
    state: JobState,
    placement: Placement,
    cause: StopCause,
    by: str = "",
    *,
    at_home: bool = False,
) -> None:
    """Let a gang go on at another place of its own: that is held for it, and it saves and stops.

    at_home: in a cell of its queue; one that is there and changes its size stays there.
    """
    draft.record(
        GangMoving(
            at=draft.now,
            job=state.job,
            attempt=state.attempt,
            placement=placement,
            cause=cause,
            by=by,
            at_home=at_home or (state.at_home and cause is StopCause.RESIZED),
        )
    )
    save_then_stop(draft, state, cause, draft.ledger.policy)


def _stop_for(draft: Draft, wanted: Wanted, plan: Plan, taste: Taste) -> None:
    """Claim the room and ask its holders to leave; start at once if only claims of others were in the way."""
    ledger, state = draft.ledger, wanted.state
    _drop_later_claims(draft, state, plan.placement)
    if not plan.victims:
        with lifted(ledger, passed_by(ledger, state, draft.now)):
            placement = _free_place(ledger, wanted, plan, taste)
            if placement is not None:
                start(draft, state, placement)
                return
    victims = tuple(victim.owner for victim in plan.victims)
    reclaimed = _borrowers(ledger, wanted)
    _claim(draft, wanted, plan.placement, victims)
    by_order = ledger.policy.preemption.by == "order"
    for owner in victims:
        other = ledger.jobs[owner]
        cause = "reclaim" if owner in reclaimed else "order" if by_order else "priority"
        draft.record(
            GangPreempted(at=draft.now, job=owner, attempt=other.attempt, by=state.job, cause=cause)
        )
        save_then_stop(draft, other, StopCause.PREEMPTED, ledger.policy)


def _free_place(ledger: Ledger, wanted: Wanted, plan: Plan, taste: Taste) -> Placement | None:
    """A place that is free now and at which the gang is admitted: the best, else the planned one."""
    rooms = ledger.rooms()
    placement = find(rooms, wanted.spec, taste)
    if placement is not None and _admitted_at(ledger, wanted, placement):
        return placement
    return None if rooms.missing(plan.placement.members) else plan.placement


def _claim(draft: Draft, wanted: Wanted, placement: Placement, victims: Sequence[str]) -> None:
    """Record the claim, on those who are asked and on those who leave the place anyway."""
    ledger = draft.ledger
    _drop_later_claims(draft, wanted.state, placement)
    leaving = tuple(job for job in _holders(ledger, placement) if ledger.jobs[job].leaving)
    draft.record(
        RoomClaimed(
            at=draft.now,
            job=wanted.state.job,
            placement=placement,
            victims=(*victims, *leaving),
        )
    )


def _drop_later_claims(draft: Draft, state: JobState, placement: Placement) -> None:
    """Let go of room that is held, on nodes of the place, for gangs whose claims give way to this one."""
    ledger, nodes = draft.ledger, placement.nodes
    for job, claim in list(ledger.claims.items()):
        gives_way = overrules(ledger, state, ledger.jobs[job])
        if gives_way and not nodes.keys().isdisjoint(claim.placement.nodes):
            draft.record(ClaimDropped(at=draft.now, job=job, reason=f"{state.job} goes first"))


def _holders(ledger: Ledger, placement: Placement) -> list[str]:
    """Jobs that hold something on a node of the place."""
    nodes = placement.nodes
    return [
        state.job
        for state in ledger.holding.values()
        if state.placement is not None
        and any(member.node in nodes for member in state.placement.members)
    ]
