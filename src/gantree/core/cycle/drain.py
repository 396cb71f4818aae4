"""Gangs leave drained nodes and unhealthy nodes, with as little harm as possible. They use no eviction budget for it.

A gang on a drained node

    fits elsewhere               saves, stops and restarts there, at another size if it is elastic
    fits nowhere, no deadline    saves, stops and waits at its old position in the order
    fits nowhere, a deadline     runs on until then; it moves earlier if room becomes free
    is never preempted           runs to its end
    is in a cell of its queue    saves, stops and returns to its cells as soon as they have room
    is a replica of a service    is replaced, and drains once another one is ready (`core.services.reconcile`)

A gang on an unhealthy node (`Cordon.unwell`) may run on without a failure. So it leaves only if it loses nothing: it
can save a checkpoint, fits elsewhere, and has not been preempted, or moved for this cause, as often as its eviction
budget allows in 24 hours. The others stay, with a reason that users see (`core.explain.nodes`).
"""

from collections.abc import Callable, Iterator
from math import inf

from gantree.core.events.operator_requests import UNDER_WAY
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.site import Cordon
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import save_then_stop
from gantree.core.preemption.free_capacity import move
from gantree.core.queue.scaling import place_elsewhere
from gantree.model.facts import GangRunning
from gantree.model.phases import Phase, StopCause
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.policy.order import DAY_S


def drain(builder: DecisionBuilder, preferences: PlacementPreferences) -> None:
    """Move or stop the gangs that can leave now, the oldest first."""
    for state, deadline_at in list(leaving_gangs(builder.ledger, builder.now)):
        _drain(builder, state, deadline_at, preferences)


def next_leaving(ledger: Ledger, now: float) -> float:
    """The next moment after now, in seconds, at which a gang must or may leave a node; inf if there is none.

    It must at the deadline of a drain, and may once its eviction budget allows it again.
    """
    moments = [deadline_at for _, deadline_at in leaving_gangs(ledger, now)]
    moments += [may_leave_from(ledger, state) for state, _ in _gangs_on(ledger, _is_unwell)]
    return min((moment for moment in moments if moment > now), default=inf)


def _drain(
    builder: DecisionBuilder, state: JobState, deadline_at: float, preferences: PlacementPreferences
) -> None:
    ledger = builder.ledger
    if state.spec.service is not None:
        return
    placement = None if state.at_home else place_elsewhere(ledger, state, preferences)
    if placement is not None:
        resized = len(placement.members) != len(state.placement.members if state.placement else ())
        cause = StopCause.RESIZED if resized else StopCause.MOVED
        move(builder, state, placement, cause, flees=why_unwell(ledger, state))
    elif deadline_at <= builder.now:
        save_then_stop(builder, state, StopCause.DRAINED, ledger.policy)


def leaving_gangs(ledger: Ledger, now: float) -> Iterator[tuple[JobState, float]]:
    """The gangs that are to leave their nodes and have not been stopped yet, each with its deadline in seconds.

    The deadline is inf on unhealthy nodes.
    """
    for state, here in _gangs_on(ledger, lambda one: one.drain or _is_unwell(one)):
        deadlines = [_deadline(one) for one in here if one.drain]
        if deadlines or not why_staying(ledger, state, now):
            yield state, min(deadlines, default=inf)


def leaves_once_running(ledger: Ledger, fact: GangRunning) -> bool:
    """Whether a gang that has just begun to run is to leave its nodes: on unhealthy ones it stays until then."""
    if not ledger.site.cordoned:
        return False
    return any(state.job == fact.job for state, _ in leaving_gangs(ledger, fact.at))


def _gangs_on(
    ledger: Ledger, is_meant: Callable[[Cordon], bool]
) -> Iterator[tuple[JobState, list[Cordon]]]:
    """The running gangs that may be stopped, and replicas of services, on nodes with such a cordon; each with these."""
    if ledger.occupancy is None or not ledger.site.cordoned:
        return
    rooms = ledger.occupancy
    known = rooms.fabric.index_of_node
    meant = {
        node: one for node, one in ledger.site.cordoned.items() if node in known and is_meant(one)
    }
    there = {owner for node in meant for owner in rooms.holders(node)}
    if there.isdisjoint(ledger.holding):
        return
    for state in ledger.holding.values():
        if state.job not in there:
            continue
        may_stop = state.spec.preemptible or state.spec.service is not None
        if state.phase in UNDER_WAY and state.moving is None and may_stop:
            here = [meant[node] for node in _nodes(state) if node in meant]
            if here:
                yield state, here


def _is_unwell(cordon: Cordon) -> bool:
    return bool(cordon.unwell)


def why_staying(ledger: Ledger, state: JobState, now: float) -> str:
    """Why a gang stays on an unhealthy node, to end a sentence; "" if it leaves as soon as it fits elsewhere."""
    if not ledger.policy.leave_unwell:
        return "the policy lets nobody leave for that"
    return why_never_leaving(ledger, state, now)


def why_never_leaving(ledger: Ledger, state: JobState, now: float) -> str:
    """Why a gang leaves its place for no fault there that it can live with, to end a sentence; "" if it may."""
    if state.spec.service is not None:
        return "it is a replica of a service, which starts another one first"
    if not state.spec.preemptible:
        return "it is never stopped"
    if state.spec.checkpoint is None:
        return "it does not say how it saves"
    if state.phase is not Phase.RUNNING:
        return "it does not run yet"
    if state.missing:
        return "a member of it is being replaced"
    return "its eviction budget is used up" if now < may_leave_from(ledger, state) else ""


def may_leave_from(ledger: Ledger, state: JobState) -> float:
    """The moment from which the eviction budget lets a gang leave a place with a fault, in seconds."""
    budget = ledger.policy.evictions_per_day
    left_at = sorted((*state.preempted_at, *state.fled_at))
    if budget is None or len(left_at) < budget:
        return -inf
    return inf if budget == 0 else left_at[-budget] + DAY_S


def why_unwell(ledger: Ledger, state: JobState) -> str:
    """What is wrong with the nodes of a gang; "" for nothing."""
    cordons = ((node, ledger.site.cordoned.get(node)) for node in _nodes(state))
    wrong = (f"node {node}: {one.unwell}" for node, one in cordons if one and one.unwell)
    return "; ".join(wrong)


def _nodes(state: JobState) -> dict[str, int]:
    assert state.placement is not None, f"{state.job} has no place"
    return dict.fromkeys(state.placement.nodes, 0)


def _deadline(cordon: Cordon) -> float:
    return -inf if cordon.deadline_at is None else cordon.deadline_at
