"""Making room for a gang that does not fit: who must leave, and the claim that holds the room meanwhile.

Room that victims leave is held for its claimant from the moment it is free (`Ledger.hold_claims`), so nothing
slips in between. Room that somebody leaves anyway can be claimed too: otherwise a job of a lower class, further
down the queue, would take what is free now, and be preempted for it a moment later. A claim holds against all that
come after its job, never against those that go before it.

Which victims do least harm is `planning.preempt`; which may be stopped at all is decided here, by the policy.
"""

from math import inf

from gantree.core.draft import Draft
from gantree.core.ledger import CLAIM, JobState, Ledger
from gantree.core.lifecycle import save_then_stop, start
from gantree.model.facts import ClaimDropped, GangPreempted, RoomClaimed
from gantree.model.phases import StopCause
from gantree.model.placements import Placement
from gantree.placement.search import find
from gantree.placement.taste import Taste
from gantree.planning.preempt import Plan, Victim, plan_preemption
from gantree.policy.rules import Policy
from gantree.topology.occupancy import Occupancy

DAY_S = 86_400.0


def find_victims(
    ledger: Ledger, state: JobState, now: float, policy: Policy, taste: Taste
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
    plan = plan_preemption(_room_to_come(ledger, state), state.spec, victims, taste)
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


def make_room(draft: Draft, state: JobState, plan: Plan, policy: Policy, taste: Taste) -> None:
    """Claim the room and ask its holders to leave; start at once if only claims of others were in the way."""
    ledger = draft.ledger
    _drop_later_claims(draft, state, plan.placement)
    placement = None if plan.victims else find(ledger.rooms(), state.spec, taste)
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
