"""Marks nodes and links that the check before a start found at fault, by the events of other health sources.

A node is taken out as an unhealthy one, within the same limit: where a fifth of the nodes is out already, it is kept in
use and says so. A link carries the share that was measured, of what it carried before. Nothing here clears a mark:
an operator does (`gantree uncordon`, `gantree restore`), after a burn-in for example.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gantree.control.nodes.blast_radius import nodes_out, why_kept
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import LinkId
from gantree.model.events import Event, HealthObserved, LinkHealthObserved

SOURCE = "check"
LEAST = 0.05
"""The lowest share that a link is said to carry: it is slow, not gone."""


def marks_of_check(
    ledger: Ledger, job: str, attempt: int, faults: Sequence[Mapping[str, Any]], now: float
) -> list[Event]:
    """Return the events, under ids that are the same each time. faults are as the report of a check has them."""
    events: list[Event] = []
    out = set(nodes_out(ledger))
    for fault in faults:
        if fault["link"] is not None:
            link = LinkId(*fault["link"])
            events.append(_of_link(ledger, link, fault, f"{job}/{attempt}/check/{link}", now))
        elif fault["node"] is not None:
            kept = why_kept(ledger, fault["node"], out)
            if not kept:
                out.add(fault["node"])
            events.append(
                HealthObserved(
                    id=f"{job}/{attempt}/check/{fault['node']}",
                    observed_at=now,
                    node=fault["node"],
                    source=SOURCE,
                    reason=f"check of {job}: {fault['reason']}",
                    kept=kept,
                )
            )
    return events


def _of_link(
    ledger: Ledger, link: LinkId, fault: Mapping[str, Any], event_id: str, now: float
) -> LinkHealthObserved:
    before = ledger.site.health_of_link().get(link, 1.0)
    return LinkHealthObserved(
        id=event_id,
        observed_at=now,
        link=link,
        source=SOURCE,
        health=max(LEAST, round(min(1.0, fault["share"]) * before, 2)),
        reason=fault["reason"],
    )
