"""Handles new node restrictions of a pending job (`model.node_restrictions`)."""

from collections.abc import Callable, Iterator
from typing import Any

from gantree.core.events.operator_requests import withdraw
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.model.events import BarsRequested, Event
from gantree.model.facts import JobBarred
from gantree.model.node_restrictions import node_restrictions_of
from gantree.model.node_rules import satisfies
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.policy.rules import Policy


def _bars_requested(builder: DecisionBuilder, event: BarsRequested, policy: Policy) -> None:
    """One that holds a place keeps it; what is held for one that waits stays as long as it may be there."""
    ledger = builder.ledger
    state = ledger.jobs.get(event.job)
    if (
        state is None
        or state.phase is not Phase.PENDING
        or node_restrictions_of(state.spec) == dict(event.bars)
    ):
        return
    builder.record(
        JobBarred(at=builder.now, job=state.job, bars=tuple(event.bars), reason=event.reason)
    )
    if any(not _is_admitted(ledger, place, event) for place in _held_for(ledger, state.job)):
        withdraw(builder, state.job, f"it may not be there any more: {event.reason}")


def _held_for(ledger: Ledger, job: str) -> Iterator[Placement]:
    for held in (ledger.claims.get(job), ledger.reservations.get(job)):
        if held is not None:
            yield held.placement


def _is_admitted(ledger: Ledger, placement: Placement, event: BarsRequested) -> bool:
    """Whether every member is on a node where its role may be."""
    rules, fabric = dict(event.bars), ledger.rooms().fabric
    for member in placement.members:
        node = fabric.nodes[fabric.index_of_node[member.node]]
        rule = rules.get(member.role)
        if rule is not None and not satisfies(node.name, dict(node.labels), rule):
            return False
    return True


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    BarsRequested: _bars_requested
}
