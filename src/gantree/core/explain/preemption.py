"""Why preemption does not help a pending job: gangs that the policy protects, its back-off, plans without use."""

from collections.abc import Sequence

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import (
    PreemptionRequest,
    find_candidates,
    may_preempt_at,
    projected_occupancy,
)
from gantree.core.preemption.reclaimers import find_reclaimer
from gantree.core.queue.held_capacity import outranks_reservation
from gantree.core.queue.slot_demands import SlotDemands
from gantree.planning.preemption.plan import Plan, Victim, plan_preemption, why_not
from gantree.policy.quota.admission import Admission


def gangs_in_the_way(
    ledger: Ledger, state: JobState, admission: Admission, now: float
) -> tuple[tuple[str, str], ...]:
    """The fewest jobs that would have to end for the gang, and why each may not be preempted for it."""
    request = PreemptionRequest(state, state.spec, admission)
    candidates = find_candidates(ledger, request, now, with_forbidden=True)
    forbidden = why_not(
        projected_occupancy(ledger, state), state.spec, candidates.victims, candidates.forbidden
    )
    return tuple((each.victim.owner, each.because) for each in forbidden)


def back_off_sentence(ledger: Ledger, state: JobState, admission: Admission, now: float) -> str:
    """A further sentence for a gang that may preempt no other until its back-off ends; "" for others."""
    wait_s = may_preempt_at(ledger, PreemptionRequest(state, state.spec, admission)) - now
    if wait_s <= 0 or not may_preempt_any(ledger, state):
        return ""
    return f" It preempted others {state.preempting_claims} times and may do so again in {wait_s:.0f} s."


def futile_plan_sentence(ledger: Ledger, state: JobState, admission: Admission, now: float) -> str:
    """A further sentence for a gang that could claim room but would not get it, or not keep it; "" otherwise."""
    request = PreemptionRequest(state, state.spec, admission)
    projected = projected_occupancy(ledger, state)
    victims = find_candidates(ledger, request, now).victims
    plan = plan_preemption(projected, state.spec, victims) if victims or ledger.leaving else None
    if plan is not None:
        reclaimer = find_reclaimer(ledger, request, plan, projected, SlotDemands(), now)
        because = (
            ""
            if reclaimer is None
            else f"{reclaimer.job} gets that room, within the guarantee of its queue"
        )
    else:
        plan, because = _plan_on_promised(ledger, state, victims)
    if plan is None or not because:
        return ""
    stopped = ", ".join(victim.owner for victim in plan.victims)
    claiming = f"Preempting {stopped}" if stopped else "Claiming what others leave"
    return f" {claiming} would not help: {because}."


def _plan_on_promised(
    ledger: Ledger, state: JobState, victims: Sequence[Victim]
) -> tuple[Plan | None, str]:
    """The preemption that would help if no room were reserved, and the reservations that it meets."""
    if not victims or not ledger.reservations:
        return None, ""
    plan = plan_preemption(
        projected_occupancy(ledger, state, ignoring_reservations=True), state.spec, victims
    )
    if plan is None:
        return None, ""
    nodes = plan.placement.nodes.keys()
    reserved = [
        job
        for job, reservation in ledger.reservations.items()
        if not outranks_reservation(ledger, state, job)
        and not nodes.isdisjoint(reservation.placement.nodes)
    ]
    return plan, f"that room is reserved for {', '.join(reserved)}" if reserved else ""


def may_preempt_any(ledger: Ledger, state: JobState) -> bool:
    """Whether the policy lets this job preempt any job, so that a refusal to do so is worth telling."""
    by = ledger.policy.preemption.by
    return by == "order" or (by == "priority" and ledger.lowest_priority() < state.priority)
