"""Sentences about cordoned nodes, for pending jobs and for jobs that run on them."""

from collections.abc import Iterable

from gantree.core.cycle.drain import why_staying, why_unwell
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.site import Cordon
from gantree.core.ledger.state import JobState
from gantree.model.phases import ENDED
from gantree.model.placements import Placement

NODES_SHOWN = 4


def cordoned_for(ledger: Ledger, state: JobState) -> str:
    """A further sentence on cordoned nodes that could hold a waiting job; "" where there are none."""
    rooms = ledger.occupancy
    if rooms is None:
        return ""
    fabric, shapes = rooms.fabric, [role.shape for role in state.spec.roles]
    admitting = [
        node
        for node in ledger.site.cordoned
        if (index := fabric.index_of_node.get(node)) is not None
        and any(fabric.nodes_with(shape.labels, shape.models)[index] for shape in shapes)
    ]
    if not admitting:
        return ""
    named = ", ".join(_with_reason(node, ledger.site.cordoned[node]) for node in shown(admitting))
    more = len(admitting) - NODES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    return f" {'Node' if len(admitting) == 1 else 'Nodes'} not counted, as cordoned: {named}{rest}."


def _with_reason(node: str, cordon: Cordon) -> str:
    return f"{node} ({cordon.reason})" if cordon.reason else node


def shown(nodes: Iterable[str]) -> list[str]:
    """The first of some nodes, as many as a sentence holds."""
    return list(nodes)[:NODES_SHOWN]


def staying_on(ledger: Ledger, state: JobState, now: float) -> str:
    """Further sentences on a job that runs on cordoned nodes; "" for others."""
    placement = state.placement
    if placement is None or state.phase in ENDED or state.leaving:
        return ""
    wrong = why_unwell(ledger, state)
    return (
        _on_unwell(ledger, state, wrong, now)
        + _on_kept(ledger, placement)
        + _on_drained(ledger, state, placement)
    )


def kept_in_words(node: str, kept: str) -> str:
    """Why a node stays in use though something is wrong with it, and the way to take it out."""
    return f"kept in use: {kept}; `gantree cordon {node}` takes it out"


def _on_kept(ledger: Ledger, placement: Placement) -> str:
    """Sentences on nodes of a gang that are unhealthy and stay in use."""
    kept = [(node, one) for node in placement.nodes for one in ledger.site.kept_in_use(node)]
    more = len(kept) - NODES_SHOWN
    rest = f" So are {more} more of its nodes." if more > 0 else ""
    said = (
        f" It may fail (node {node}: {one.reason}); the node is {kept_in_words(node, one.kept)}."
        for node, one in kept[:NODES_SHOWN]
    )
    return "".join(said) + rest


def _on_unwell(ledger: Ledger, state: JobState, wrong: str, now: float) -> str:
    if not wrong:
        return ""
    stays = why_staying(ledger, state, now)
    then = f"it stays, for {stays}" if stays else "it leaves when it has a place elsewhere"
    return f" It may fail ({wrong}); {then}."


def _on_drained(ledger: Ledger, state: JobState, placement: Placement) -> str:
    draining = [n for n in placement.nodes if (c := ledger.site.cordoned.get(n)) and c.drain]
    if not draining:
        return ""
    named = ", ".join(shown(draining))
    if not state.spec.preemptible:
        return f" Being drained: {named}; it may not be preempted, so the drain waits for it."
    return f" Being drained: {named}; it leaves when it has a place elsewhere, at the deadline at the latest."
