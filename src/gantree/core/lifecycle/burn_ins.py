"""Burn-ins of cordoned nodes: gangs that start on exactly these nodes, at once or not at all.

Nothing else may start on a cordoned node, and nobody waits for one; so a burn-in never waits in a queue. It is counted
like any gang while it runs.
"""

from collections.abc import Callable
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.lifecycle.lifecycle import accept, start
from gantree.model.events import BurnInRequested, Event
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.policy.rules import Policy


def burn_in_place(ledger: Ledger, spec: Job) -> Placement | str:
    """The place of a burn-in on its nodes, or why there is none."""
    known = {} if ledger.fabric is None else ledger.fabric.index_of_node
    for node in spec.on_cordoned:
        if node not in known:
            return f"there is no node {node}"
        if node in ledger.unusable:
            return f"node {node} is lost"
        if node not in ledger.site.cordoned:
            return f"node {node} is not cordoned: `gantree drain {node}` first"
        held = [job for job, state in ledger.holding.items() if _is_on(state.placement, node)]
        if held:
            return f"node {node} has {', '.join(held)}: `gantree drain {node}` lets them leave"
    rooms = ledger.rooms().copy()
    for node in spec.on_cordoned:
        rooms.mark(node, usable=True)
    found = place(rooms, spec)
    return found.sentence if isinstance(found, Refused) else found


def _is_on(placement: Placement | None, node: str) -> bool:
    return placement is not None and node in placement.nodes


def _burn_in_requested(builder: DecisionBuilder, event: BurnInRequested, policy: Policy) -> None:
    ledger = builder.ledger
    if event.job in ledger.jobs or event.job in ledger.rejected:
        return
    found = burn_in_place(ledger, event.spec)
    accept(builder, event.job, event.spec, policy, found if isinstance(found, str) else "")
    if event.job in ledger.jobs and isinstance(found, Placement):
        start(builder, ledger.jobs[event.job], found)


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    BurnInRequested: _burn_in_requested
}
