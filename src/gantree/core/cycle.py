"""One walk over the waiting jobs: place what fits, make room for what may, and say nothing of the rest.

The walk goes in the order of the queue. Every job is either placed, or given a claim on room that lower-priority
gangs are told to leave, or left waiting; a gang behind one that waits may still start, on room that is not
claimed. Placing and making room happen in one walk and not in two, or a small job would be started on GPUs that
the next step takes away again.

What was refused need not be asked again until room appears: within the walk room only shrinks, and between walks
`Ledger.room_version` tells. Jobs that are alike share the answer (`policy.order`).

Room that victims leave is held for its claimant from the moment it is free (`Ledger.hold_claims`), so nothing
slips in between; claims are settled before anything else is placed. Room that somebody leaves anyway can be
claimed too: otherwise a job of a lower class, further down, would take what is free now, and be preempted for it
a moment later. A claim holds against all that come after its job, never against those that go before it.
"""

from collections.abc import Hashable
from math import inf
from typing import NamedTuple

from gantree.core.draft import Draft
from gantree.core.launch import start_order
from gantree.core.ledger import CLAIM, JobState, Ledger
from gantree.core.lifecycle import save_then_stop
from gantree.model.facts import ClaimDropped, GangPlaced, GangPreempted, RoomClaimed
from gantree.model.phases import HOLDING, Phase, StopCause
from gantree.model.placements import Placement
from gantree.placement.search import find, fits
from gantree.planning.preempt import Plan, Victim, plan_preemption
from gantree.policy.order import Position
from gantree.policy.preset import Policy
from gantree.topology.occupancy import Occupancy

DAY_S = 86_400.0


class Unplanned(NamedTuple):
    """No room can be made at these versions of the ledger, before this moment in seconds (None: whenever)."""

    room_version: int
    holders_version: int
    retry_at: float | None


class Cycle:
    """The walk, with what it remembers of earlier ones: derived memory, never needed for correctness."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._refused_at: dict[Hashable, int] = {}
        self._unplanned: dict[tuple[Hashable, int], Unplanned] = {}
        self._settled_at = -1

    def run(self, draft: Draft) -> None:
        """Decide who starts now and who must make room."""
        if draft.ledger.occupancy is None:
            return
        self._settle_claims(draft)
        walk = draft.ledger.lines.walk(
            lambda signature, position: self._worth_asking(draft, signature, position)
        )
        for signature, position in walk:
            state = draft.ledger.jobs[position.job]
            if _eligible(draft, state):
                self._place_or_make_room(draft, signature, state)

    def wake_at(self, ledger: Ledger, now: float) -> float | None:
        """The next moment after now at which a gang becomes old enough to be stopped for one that waits."""
        version = (ledger.room_version, ledger.holders_version)
        moments = [
            unplanned.retry_at
            for (signature, priority), unplanned in self._unplanned.items()
            if unplanned.retry_at is not None
            and unplanned.retry_at > now
            and unplanned[:2] == version
            and ledger.lines.waits(signature, priority)
        ]
        return min(moments, default=None)

    def _worth_asking(self, draft: Draft, signature: Hashable, position: Position) -> bool:
        """Whether the rest of a line could get another answer than its last one."""
        if self._refused_at.get(signature) != draft.ledger.room_version:
            return True
        return self._may_make_room(draft, signature, -position.minus_priority)

    def _may_make_room(self, draft: Draft, signature: Hashable, priority: int) -> bool:
        ledger = draft.ledger
        hopeless = ledger.lowest_priority() >= priority and not ledger.leaving and not ledger.claims
        if not self._policy.preempt or hopeless:
            return False
        last = self._unplanned.get((signature, priority))
        if last is None or last[:2] != (ledger.room_version, ledger.holders_version):
            return True
        return last.retry_at is not None and last.retry_at <= draft.now

    def _place_or_make_room(self, draft: Draft, signature: Hashable, state: JobState) -> None:
        ledger = draft.ledger
        if self._refused_at.get(signature) != ledger.room_version:
            placement = find(ledger.rooms(), state.spec)
            if placement is not None:
                start(draft, state, placement)
                return
            self._refused_at[signature] = ledger.room_version
        if self._may_make_room(draft, signature, state.priority):
            plan, retry_at = find_victims(ledger, state, draft.now, self._policy)
            if plan is not None:
                self._unplanned.pop((signature, state.priority), None)
                make_room(draft, state, plan, self._policy)
                return
            self._unplanned[signature, state.priority] = Unplanned(
                ledger.room_version, ledger.holders_version, retry_at
            )

    def _settle_claims(self, draft: Draft) -> None:
        """Start claimants whose room is free; drop claims whose victims have left in vain."""
        ledger = draft.ledger
        if not ledger.claims or self._settled_at == ledger.room_version:
            return
        for job in sorted(ledger.claims, key=lambda name: ledger.jobs[name].position):
            state, claim = ledger.jobs[job], ledger.claims[job]
            hypothetical = ledger.rooms().copy()
            hypothetical.give_back(CLAIM + job)
            if fits(hypothetical, state.spec):
                _start_claimant(draft, state)
            elif not any(_still_leaving(ledger, victim) for victim in claim.victims):
                draft.record(ClaimDropped(at=draft.now, job=job, reason="the room was lost"))
        self._settled_at = ledger.room_version


def start(draft: Draft, state: JobState, placement: Placement) -> None:
    """Give the gang its place and tell the cluster."""
    draft.record(
        GangPlaced(at=draft.now, job=state.job, attempt=state.attempt + 1, placement=placement)
    )
    draft.order(start_order(state))


def _eligible(draft: Draft, state: JobState) -> bool:
    """Whether the job waits for nothing but room. Claimants were looked at before."""
    ledger = draft.ledger
    if state.not_before > draft.now or state.job in ledger.claims:
        return False
    return all(ledger.jobs[name].phase is Phase.SUCCEEDED for name in state.spec.after)


def _start_claimant(draft: Draft, state: JobState) -> None:
    draft.record(ClaimDropped(at=draft.now, job=state.job, reason="its room is free"))
    placement = find(draft.ledger.rooms(), state.spec)
    assert placement is not None, f"{state.job}: the room held for it does not hold it"
    start(draft, state, placement)


def _still_leaving(ledger: Ledger, victim: str) -> bool:
    state = ledger.jobs[victim]
    return state.phase in HOLDING and state.leaving


def find_victims(
    ledger: Ledger, state: JobState, now: float, policy: Policy
) -> tuple[Plan | None, float | None]:
    """The least harmful way to make room for a gang that does not fit, with a proof that it then does.

    Without one: the next moment, in seconds, at which one more gang may be stopped (None: no such moment).
    """
    victims, later = [], []
    for other in ledger.holding.values():
        if other.leaving or other.priority >= state.priority:
            continue
        moment = stoppable_at(other, policy)
        if moment > now:
            later.append(moment)
            continue
        harm_gpu_s = other.gpu_s_at_stake(now)
        victims.append(Victim(other.job, other.priority, harm_gpu_s, other.seq))
    plan = plan_preemption(_room_to_come(ledger, state), state.spec, victims)
    return plan, min((moment for moment in later if moment < inf), default=None)


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


def _room_to_come(ledger: Ledger, state: JobState) -> Occupancy:
    """The occupancy when everyone who leaves has left, with the claims of those that go before the job whole.

    Claims of those that come after it do not count: they were made before it arrived.
    """
    later = ledger.rooms().copy()
    for owner in (*ledger.leaving, *(CLAIM + job for job in ledger.claims)):
        later.give_back(owner)
    for job, claim in ledger.claims.items():
        if ledger.jobs[job].position < state.position:
            later.take_free(CLAIM + job, claim.placement.members)
    return later


def make_room(draft: Draft, state: JobState, plan: Plan, policy: Policy) -> None:
    """Claim the room and ask its holders to leave; start at once if only claims of others were in the way."""
    ledger = draft.ledger
    _drop_later_claims(draft, state, plan.placement)
    placement = None if plan.victims else find(ledger.rooms(), state.spec)
    if placement is not None:
        start(draft, state, placement)
        return
    victims = tuple(victim.owner for victim in plan.victims)
    leaving = tuple(job for job in _holders(ledger, plan.placement) if ledger.jobs[job].leaving)
    draft.record(
        RoomClaimed(
            at=draft.now, job=state.job, placement=plan.placement, victims=victims + leaving
        )
    )
    for owner in victims:
        other = ledger.jobs[owner]
        draft.record(GangPreempted(at=draft.now, job=owner, attempt=other.attempt, by=state.job))
        save_then_stop(draft, other, StopCause.PREEMPTED, policy)


def _drop_later_claims(draft: Draft, state: JobState, placement: Placement) -> None:
    """Let go of room that is held, on nodes of the place, for gangs that come after this one."""
    nodes = {member.node for member in placement.members}
    for job, claim in list(draft.ledger.claims.items()):
        after = draft.ledger.jobs[job].position > state.position
        if after and not nodes.isdisjoint(member.node for member in claim.placement.members):
            draft.record(ClaimDropped(at=draft.now, job=job, reason=f"{state.job} goes first"))


def _holders(ledger: Ledger, placement: Placement) -> list[str]:
    """Jobs that hold something on a node of the place."""
    nodes = {member.node for member in placement.members}
    return [
        state.job
        for state in ledger.holding.values()
        if state.placement is not None
        and any(member.node in nodes for member in state.placement.members)
    ]
