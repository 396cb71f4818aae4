"""Draining nodes, and fleeing from such as are unwell: who stands on one leaves it, with as little harm as can be.

    has a place elsewhere         it saves, stops and goes on there (elastic gangs at another size, if need be)
    has none, no deadline         it saves, stops and waits in its place in the order of arrival
    has none, there is one        it runs on until then; a place that comes free before is taken
    can never be told to leave    it is waited for
    is at home in its cells       it saves, stops and goes home again as soon as its cells have room

It uses up no eviction.

Of a node that is unwell (`Cordon.unwell`) nobody knows whether what runs there will fail. So only who loses nothing by
it leaves: a gang that can save, has a place elsewhere, and was not stopped for others or moved for this cause as often
as its eviction budget allows within 24 hours. Others stay, and are told why (`core.explain.nodes`).

Nothing is asked anew before room, the gang or the deadline has changed; that memory may be
forgotten at any time.
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
from gantree.model.phases import Phase, StopCause
from gantree.placement.request.preferences import PlacementPreferences
from gantree.policy.order import DAY_S


def send_away(builder: DecisionBuilder, preferences: PlacementPreferences) -> None:
    """Send away who can leave now, those that came first before others."""
    for state, deadline_at in list(to_leave(builder.ledger, builder.now)):
        _send(builder, state, deadline_at, preferences)


def next_leaving(ledger: Ledger, now: float) -> float:
    """The next deadline after now of a node on which somebody waits for a place, or end of a day in which somebody
    may not flee, in seconds; inf if none."""
    moments = [deadline_at for _, deadline_at in to_leave(ledger, now)]
    moments += [_may_flee_at(ledger, state) for state, _ in _standing_where(ledger, _is_unwell)]
    return min((moment for moment in moments if moment > now), default=inf)


def _send(
    builder: DecisionBuilder, state: JobState, deadline_at: float, preferences: PlacementPreferences
) -> None:
    ledger = builder.ledger
    placement = None if state.at_home else place_elsewhere(ledger, state, preferences)
    if placement is not None:
        resized = len(placement.members) != len(state.placement.members if state.placement else ())
        cause = StopCause.RESIZED if resized else StopCause.MOVED
        move(builder, state, placement, cause, flees=what_is_wrong(ledger, state))
    elif deadline_at <= builder.now:
        save_then_stop(builder, state, StopCause.DRAINED, ledger.policy)


def to_leave(ledger: Ledger, now: float) -> Iterator[tuple[JobState, float]]:
    """Gangs that are to leave nodes and were not told to yet, each with the moment, in seconds, by which it must.

    Who flees must at no moment: inf.
    """
    for state, here in _standing_where(ledger, lambda one: one.drain or _is_unwell(one)):
        deadlines = [_deadline(one) for one in here if one.drain]
        if deadlines or not stays_because(ledger, state, now):
            yield state, min(deadlines, default=inf)


def _standing_where(
    ledger: Ledger, is_meant: Callable[[Cordon], bool]
) -> Iterator[tuple[JobState, list[Cordon]]]:
    """Gangs that may be told to leave and were not yet, each with such cordons of the nodes that it stands on."""
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
        if state.phase in UNDER_WAY and state.moving is None and state.spec.preemptible:
            here = [meant[node] for node in _nodes(state) if node in meant]
            if here:
                yield state, here


def _is_unwell(cordon: Cordon) -> bool:
    return bool(cordon.unwell)


def stays_because(ledger: Ledger, state: JobState, now: float) -> str:
    """Why a gang does not flee from a node that is unwell, whatever room there is, to end a sentence; "": it does."""
    if not ledger.policy.leave_unwell:
        return "the policy lets nobody leave for that"
    if not state.spec.preemptible:
        return "it is never stopped"
    if state.spec.checkpoint is None:
        return "it does not say how it saves"
    if state.phase is not Phase.RUNNING:
        return "it does not run yet"
    return "its eviction budget is used up" if now < _may_flee_at(ledger, state) else ""


def _may_flee_at(ledger: Ledger, state: JobState) -> float:
    """The moment from which on its eviction budget lets a gang flee, in seconds."""
    budget = ledger.policy.evictions_per_day
    left_at = sorted((*state.preempted_at, *state.fled_at))
    if budget is None or len(left_at) < budget:
        return -inf
    return inf if budget == 0 else left_at[-budget] + DAY_S


def what_is_wrong(ledger: Ledger, state: JobState) -> str:
    """What is wrong with the nodes that a gang stands on, "" for nothing."""
    cordons = ((node, ledger.site.cordoned.get(node)) for node in _nodes(state))
    wrong = (f"node {node}: {one.unwell}" for node, one in cordons if one and one.unwell)
    return "; ".join(wrong)


def _nodes(state: JobState) -> dict[str, int]:
    assert state.placement is not None, f"{state.job} has no place"
    return dict.fromkeys(state.placement.nodes, 0)


def _deadline(cordon: Cordon) -> float:
    return -inf if cordon.deadline_at is None else cordon.deadline_at
