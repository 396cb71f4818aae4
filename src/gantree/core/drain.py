"""Draining nodes: who stands on one leaves it, with as little harm as can be.

    has a place elsewhere         it saves, stops and goes on there (elastic gangs at another size, if need be)
    has none, no deadline         it saves, stops and waits in its place in the order of arrival
    has none, there is one        it runs on until then; a place that comes free before is taken
    can never be told to leave    it is waited for
    is at home in its cells       it saves, stops and goes home again as soon as its cells have room

It uses up no eviction. Nothing is asked anew before room, the gang or the deadline has changed; that memory may be
forgotten at any time.
"""

from collections.abc import Hashable, Iterator
from math import inf

from gantree.core.by_hand import UNDER_WAY
from gantree.core.draft import Draft
from gantree.core.ledger import Ledger
from gantree.core.ledger_site import Cordon
from gantree.core.lifecycle import save_then_stop
from gantree.core.room import move
from gantree.core.scaling import place_elsewhere
from gantree.core.state import JobState
from gantree.model.phases import StopCause
from gantree.placement.taste import Taste


class Drain:
    """Sends gangs away; _stayed is what was known when one was last found no place."""

    def __init__(self, taste: Taste) -> None:
        self._taste = taste
        self._stayed: dict[str, Hashable] = {}

    def run(self, draft: Draft) -> None:
        """Send away who can leave now, those that came first before others."""
        for state, deadline_at in list(to_leave(draft.ledger)):
            self._send(draft, state, deadline_at)

    def wake_at(self, ledger: Ledger, now: float) -> float:
        """The next deadline after now of a node on which somebody waits for a place, in seconds; inf if none."""
        moments = (deadline_at for _, deadline_at in to_leave(ledger))
        return min((moment for moment in moments if moment > now), default=inf)

    def _send(self, draft: Draft, state: JobState, deadline_at: float) -> None:
        ledger = draft.ledger
        known = (ledger.room_version, ledger.site.version, state.attempt)
        if deadline_at > draft.now and self._stayed.get(state.job) == known:
            return
        placement = None
        if not state.at_home:
            placement = place_elsewhere(ledger, state, self._taste)
        if placement is not None:
            resized = len(placement.members) != len(
                state.placement.members if state.placement else ()
            )
            move(draft, state, placement, StopCause.RESIZED if resized else StopCause.MOVED)
        elif deadline_at <= draft.now:
            save_then_stop(draft, state, StopCause.DRAINED, ledger.policy)
        else:
            self._stayed[state.job] = known


def to_leave(ledger: Ledger) -> Iterator[tuple[JobState, float]]:
    """Gangs that are to leave nodes and were not told to yet, each with the moment, in seconds, by which it must."""
    draining = {node: each for node, each in ledger.site.cordoned.items() if each.drain}
    if not draining:
        return
    for state in ledger.holding.values():
        if state.phase in UNDER_WAY and state.moving is None and state.spec.preemptible:
            deadlines = [_deadline(draining[node]) for node in _nodes(state) if node in draining]
            if deadlines:
                yield state, min(deadlines)


def _nodes(state: JobState) -> dict[str, int]:
    assert state.placement is not None, f"{state.job} has no place"
    return dict.fromkeys(state.placement.nodes, 0)


def _deadline(cordon: Cordon) -> float:
    return -inf if cordon.deadline_at is None else cordon.deadline_at
