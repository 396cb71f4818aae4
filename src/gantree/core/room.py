"""Making room for a gang that does not fit: who must give some up, and the claim that holds it meanwhile.

From least harm to most, as the first that suffices:

    shrink        elastic gangs give members back, above the size they were written with for anybody, below it for those
                  that may stop them
    defragment    gangs move to places of their own, where the policy applies such plans and the sum gains
    reclaim       gangs that run on what another queue is guaranteed, for a gang that is within its queue's guarantee
    preempt       gangs that the waiting one may stop by priority or by order

The last two are one plan, in which those that are reclaimed count as of less right. Nobody is asked before a proof
that the gang then fits and its queue admits it. Room that is given up is held for its claimant from the moment it is
free (`Ledger.hold`), so nothing slips in between. Room that somebody leaves anyway can be claimed too: otherwise a
job further down the queue would take what is free now, and be preempted for it a moment later. A claim holds against
all that come after its job, never against those that go before it. Room of a promised start is nobody's to claim but
its own gang's.

Which victims do least harm is `planning.preempt`; who may be asked at all is decided here, by the policy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from gantree.core.draft import Draft
from gantree.core.holds import goes_before, outranks
from gantree.core.ledger import BOOKING, CLAIM, Ledger
from gantree.core.lifecycle import save_then_stop, start
from gantree.core.state import JobState
from gantree.model.facts import ClaimDropped, GangMoving, GangPreempted, RoomClaimed
from gantree.model.jobs import Job
from gantree.model.phases import StopCause
from gantree.model.placements import Placement
from gantree.placement.search import find
from gantree.placement.taste import Taste
from gantree.planning.defragment import Movable, MovePlan, plan_defragment
from gantree.planning.preempt import Forbidden, Plan, Victim, plan_preemption
from gantree.planning.preempt_trial import Admits
from gantree.planning.shrink import ElasticGang, plan_shrink
from gantree.policy.admission import Admission
from gantree.policy.order import DAY_S
from gantree.policy.rules import Policy
from gantree.topology.occupancy import Occupancy

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
            _devices(booking.placement)
            for job, booking in ledger.bookings.items()
            if not outranks(ledger, state, job)
        ]
        kept = (
            other.job
            for other in (ledger.holding.values() if reserved else ())
            if other.placement is not None
            and not all(_devices(other.placement).isdisjoint(devices) for devices in reserved)
        )
        return cls(state, spec, admission, frozenset(kept))

    @property
    def takes_back(self) -> bool:
        """Whether it may have what others borrow of its queue's guarantee."""
        return self.admission.state == "owed" or self.admission.reclaim


@dataclass(frozen=True, slots=True)
class Asked:
    """Who may be stopped for a gang, who not and why, and when the next one may be (None: no such moment)."""

    victims: tuple[Victim, ...]
    forbidden: tuple[Forbidden, ...]
    later: float | None


def whom_to_ask(ledger: Ledger, wanted: Wanted, now: float) -> Asked:
    """Every gang that holds room, by whether policy lets it be stopped for this one."""
    victims, forbidden, later = [], [], inf
    reclaimed = _borrowers(ledger, wanted)
    for other in ledger.holding.values():
        if other.leaving or other.moving is not None or other.job == wanted.state.job:
            continue
        because, moment = _objection(ledger, wanted, other, reclaimed, now)
        victim = _victim(ledger, wanted, other, reclaimed, now)
        if not because:
            victims.append(victim)
        else:
            forbidden.append(Forbidden(victim, because))
            later = min(later, moment)
    return Asked(tuple(victims), tuple(forbidden), None if later == inf else later)


def _borrowers(ledger: Ledger, wanted: Wanted) -> frozenset[str]:
    """Jobs that run on what the gang's queue is guaranteed."""
    accounts = ledger.accounts
    if not wanted.takes_back or not accounts.is_guaranteed(wanted.state.queue):
        return frozenset()
    return frozenset(accounts.quota.borrowers(wanted.state.queue))


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
    because = _no_right(ledger, wanted.state, other, now)
    if because:
        return because, inf
    moment = stoppable_at(other, ledger.policy)
    if moment > now:
        assert other.placed_at is not None
        young = now < other.placed_at + ledger.policy.min_run_s
        return ("min_run" if young else "budget"), moment
    return "", now


def _no_right(ledger: Ledger, state: JobState, other: JobState, now: float) -> str:
    """Why the waiting job has no right to stop another one by priority or by order; "" if it has."""
    rules = ledger.policy.preemption
    same_queue = state.spec.queue == other.spec.queue
    if not same_queue and not rules.across:
        return "another queue"
    if not same_queue and ledger.accounts.is_owed(other):
        return "guarantee"
    if rules.by == "none":
        return "policy"
    if rules.by == "order":
        order = ledger.accounts.order
        return "" if state.position.key < order.key(other.merits(now)) else "order"
    if other.priority >= state.priority:
        return "priority"
    allowed = rules.who.get(str(state.spec.priority))
    return "" if allowed is None or other.spec.priority in allowed else "class"


def _victim(
    ledger: Ledger, wanted: Wanted, other: JobState, reclaimed: frozenset[str], now: float
) -> Victim:
    owed = BORROWS if other.job in reclaimed else OWED * ledger.accounts.is_owed(other)
    if ledger.policy.preemption.by == "order":
        key = ledger.accounts.order.key(other.merits(now))
        right: tuple[float, ...] = (owed, *(-number for number in key))
    else:
        right = (owed, other.priority)
    harm_gpu_s = other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus
    return Victim(other.job, other.priority, harm_gpu_s, other.seq, right)


def stoppable_at(state: JobState, policy: Policy) -> float:
    """The moment from which on policy lets the running attempt be preempted, in seconds."""
    assert state.placed_at is not None
    ran_long_enough_at = state.placed_at + policy.min_run_s
    budget = policy.evictions_per_day
    if budget is None or len(state.preempted_at) < budget:
        return ran_long_enough_at
    if budget == 0:
        return inf
    return max(ran_long_enough_at, state.preempted_at[-budget] + DAY_S)


def room_to_come(ledger: Ledger, state: JobState) -> Occupancy:
    """The occupancy when everyone who leaves has left, with the claims of those that go before the job whole.

    Claims of those that come after it do not count: they were made before it arrived. What it may pass itself is free.
    """
    later = ledger.rooms().copy()
    passed = [job for job in ledger.bookings if outranks(ledger, state, job)]
    claims = (CLAIM + job for job in ledger.claims)
    for owner in (*ledger.leaving, *claims, *(BOOKING + job for job in passed)):
        later.give_back(owner)
    for job, claim in ledger.claims.items():
        other = ledger.jobs[job]
        if other.moving is not None or not goes_before(ledger, state, other):
            later.take_free(CLAIM + job, claim.placement.members)
    return later


def _devices(placement: Placement) -> frozenset[tuple[str, int]]:
    """The GPUs that a place uses, whole or in part; of members without any, the node itself (as GPU -1)."""
    return frozenset(
        (member.node, gpu)
        for member in placement.members
        for gpu in (*member.gpus, *member.parts, *(() if member.gpus or member.parts else (-1,)))
    )


# ----- the ladder


def make_room(draft: Draft, wanted: Wanted, taste: Taste) -> tuple[bool, float | None]:
    """Claim room for a gang and ask those who hold it to give it up; start at once where nobody must be asked.

    Returns whether that was possible; if not, the next moment, in seconds, at which one more gang may be stopped.
    """
    later = room_to_come(draft.ledger, wanted.state)
    if _admitted(wanted) and (
        _shrink(draft, wanted, later, taste) or _move(draft, wanted, later, taste)
    ):
        return True, None
    asked = whom_to_ask(draft.ledger, wanted, draft.now)
    plan = plan_preemption(later, wanted.spec, asked.victims, taste, _admits(draft.ledger, wanted))
    if plan is None:
        return False, asked.later
    _stop_for(draft, wanted, plan, taste)
    return True, None


def _admitted(wanted: Wanted) -> bool:
    return wanted.admission.state != "refused"


def _admits(ledger: Ledger, wanted: Wanted) -> Admits | None:
    """Whether the gang's queue admits it when these owners are gone; None where it does anyway."""
    if _admitted(wanted):
        return None
    quota, queue = ledger.accounts.quota, wanted.state.queue
    amounts, may_borrow = ledger.accounts.asked(wanted.state), wanted.spec.preemptible
    return lambda owners: not quota.room_without(queue, amounts, owners, may_borrow).refused


def _shrink(draft: Draft, wanted: Wanted, later: Occupancy, taste: Taste) -> bool:
    """Let elastic gangs give members back, if that is enough."""
    ledger, policy = draft.ledger, draft.ledger.policy
    gangs = list(_elastic(ledger, wanted, draft.now)) if policy.elastic else []
    plan = plan_shrink(later, wanted.spec, gangs, taste) if gangs else None
    if plan is None or not plan.shrunk:
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
        if other.job in wanted.kept or other.running_at is None:
            continue
        superior = other.job in reclaimed or not _no_right(ledger, wanted.state, other, now)
        least = elastic.min if superior else other.spec.members
        if len(other.placement.members) > least:
            restart_gpu_s = other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus
            right = (float(superior), other.priority)
            yield ElasticGang(
                other.job, other.present, other.placement, right, restart_gpu_s, least
            )


def _move(draft: Draft, wanted: Wanted, later: Occupancy, taste: Taste) -> bool:
    """Move gangs to places of their own, where the policy says so and the sum gains."""
    if draft.ledger.policy.defragment != "apply":
        return False
    return defragment(draft, wanted, later, taste)


def defragment(draft: Draft, wanted: Wanted, later: Occupancy, taste: Taste) -> bool:
    """Move gangs so that the wanted one fits; False where no plan gains. gain is what it waits for otherwise."""
    plan = defragmentation(draft.ledger, wanted, later, draft.now, taste)
    if plan is None:
        return False
    _claim(draft, wanted, plan.placement, tuple(each.owner for each in plan.moves))
    for each in plan.moves:
        other = draft.ledger.jobs[each.owner]
        move(draft, other, each.placement, StopCause.MOVED, wanted.state.job)
    return True


def defragmentation(
    ledger: Ledger, wanted: Wanted, later: Occupancy, now: float, taste: Taste
) -> MovePlan | None:
    """The plan that moves gangs for a waiting one, or None."""
    booking = ledger.bookings.get(wanted.state.job)
    waits_s = (booking.starts_at - now) if booking else now - wanted.state.submitted_at
    movable = [
        Movable(
            other.job,
            other.present,
            other.gpu_s_at_stake(now) + ledger.policy.restart_s * other.gpus,
        )
        for other in ledger.holding.values()
        if other.running_at is not None
        and not other.leaving
        and other.moving is None
        and other.spec.preemptible
        and other.job not in wanted.kept
        and stoppable_at(other, ledger.policy) <= now
    ]
    return plan_defragment(
        later,
        wanted.spec,
        movable,
        taste,
        gain_gpu_s=max(0.0, waits_s) * max(1, wanted.spec.gpus),
        exact_s=ledger.policy.exact_s,
    )


def move(
    draft: Draft, state: JobState, placement: Placement, cause: StopCause, by: str = ""
) -> None:
    """Let a gang go on at another place of its own: that is held for it, and it saves and stops."""
    draft.record(
        GangMoving(
            at=draft.now,
            job=state.job,
            attempt=state.attempt,
            placement=placement,
            cause=cause,
            by=by,
        )
    )
    save_then_stop(draft, state, cause, draft.ledger.policy)


def move_home(draft: Draft, state: JobState, placement: Placement) -> None:
    """Let a guest go on in a cell of its queue."""
    draft.record(
        GangMoving(
            at=draft.now,
            job=state.job,
            attempt=state.attempt,
            placement=placement,
            cause=StopCause.MOVED,
            at_home=True,
        )
    )
    save_then_stop(draft, state, StopCause.MOVED, draft.ledger.policy)


def _stop_for(draft: Draft, wanted: Wanted, plan: Plan, taste: Taste) -> None:
    """Claim the room and ask its holders to leave; start at once if only claims of others were in the way."""
    ledger, state = draft.ledger, wanted.state
    _drop_later_claims(draft, state, plan.placement)
    if not plan.victims:
        placement = find(ledger.rooms(), wanted.spec, taste)
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
    """Let go of room that is held, on nodes of the place, for gangs that come after this one."""
    ledger, nodes = draft.ledger, placement.nodes
    for job, claim in list(ledger.claims.items()):
        other = ledger.jobs[job]
        after = other.moving is None and goes_before(ledger, state, other)
        if after and not nodes.keys().isdisjoint(claim.placement.nodes):
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
