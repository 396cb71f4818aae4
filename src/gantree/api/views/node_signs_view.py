"""What nodes showed over the last days, and which are lemons, as plain JSON values. No HTTP here."""

from itertools import takewhile
from typing import Any

from gantree.accounting.node_signs import (
    DAY_S,
    KINDS,
    LEMON,
    LEMON_DAYS,
    LEMON_DAYS_OF,
    NodeSignCounter,
    NodeSigns,
)
from gantree.control.requests.read_view import ReadView

Json = dict[str, Any]


def signs_of_nodes(view: ReadView, days: int) -> Json:
    """The nodes of the site that showed signs in so many days up to now. It reads all facts of these days."""
    since = view.now - days * DAY_S
    return {
        "since": since,
        "until": view.now,
        "complete": view.journal.compacted_to() <= view.journal.facts_before(since),
        "lemon_days": LEMON_DAYS,
        "rows": [_row(each) for each in _found(view, since)],
    }


def lemons(view: ReadView) -> list[Json]:
    """The lemons of the last LEMON_DAYS_OF days, those with signs on the most days first.

    forgiven: an operator has overruled that; grown: signs came on a further day.
    """
    found = [each for each in _found(view, view.now - LEMON_DAYS_OF * DAY_S) if each.is_lemon]
    return [
        {**_row(each), "forgiven": _is_forgiven(view, each.node), "grown": each.has_grown}
        for each in found
    ]


def _found(view: ReadView, since: float) -> list[NodeSigns]:
    """The nodes of the site that showed signs since then, in seconds since 1970.

    It begins to read before that, where what was in force then is on record: who was out as a lemon.
    """
    journal, read_since = view.journal, since - LEMON_DAYS_OF * DAY_S
    first = max(journal.compacted_to(), journal.facts_before(read_since))
    recorded = takewhile(lambda each: each.seq <= view.at.seq, journal.facts(first))
    found = NodeSignCounter(since).count(each.fact for each in recorded)
    fabric = view.ledger.fabric
    names = {} if fabric is None else fabric.index_of_node
    return [each for each in found if each.node in names]


def _is_forgiven(view: ReadView, node: str) -> bool:
    illness = view.ledger.site.unwell.get(node, {}).get(LEMON)
    return illness is not None and illness.forgiven


def _row(signs: NodeSigns) -> Json:
    counts = {kind: signs.count_of_kind[kind] for kind in KINDS}
    days, last_at = len(signs.days), signs.last_at
    return {"node": signs.node, "lemon": signs.is_lemon, "days": days, **counts, "last_at": last_at}
