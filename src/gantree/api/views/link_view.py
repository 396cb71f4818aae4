"""Links of which a source reports that they carry less, as plain JSON values. No HTTP here."""

from collections.abc import Iterator
from typing import Any

from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import LinkId

Json = dict[str, Any]


def link_rows(ledger: Ledger) -> list[Json]:
    """All reports, by link and source."""
    return [row for link in sorted(ledger.site.links) for row in _rows(ledger, link)]


def rows_of_node(ledger: Ledger, node: str) -> list[Json]:
    """The reports of a node's links and NICs, and of its GPUs' links."""
    return [row for row in link_rows(ledger) if _is_of_node(LinkId(*_parts(row["link"])), node)]


def _parts(text: str) -> tuple[str, str]:
    tier, _, path = text.partition(":")
    return tier, path


def _is_of_node(link: LinkId, node: str) -> bool:
    of_node = link.nic or link.gpu
    return of_node[0] == node if of_node is not None else link == LinkId("node", node)


def _rows(ledger: Ledger, link: LinkId) -> Iterator[Json]:
    for source, sign in sorted(ledger.site.links[link].items()):
        yield {
            "link": str(link),
            "health": sign.health,
            "load": sign.load,
            "source": source,
            "reason": sign.reason,
            "since": sign.since,
            "overruled": sign.forgiven,
        }
