"""What nodes showed over the last days, as plain JSON values. No HTTP here."""

from itertools import takewhile
from typing import Any

from gantree.accounting.node_signs import DAY_S, KINDS, LEMON_DAYS, NodeSignCounter, NodeSigns
from gantree.control.requests.read_view import ReadView

Json = dict[str, Any]


def signs_of_nodes(view: ReadView, days: int) -> Json:
    """The nodes of the site that showed signs in so many days up to now. It reads all facts of these days."""
    journal, since = view.journal, view.now - days * DAY_S
    compacted, before = journal.compacted_to(), journal.facts_before(since)
    recorded = takewhile(
        lambda each: each.seq <= view.at.seq, journal.facts(max(compacted, before))
    )
    found = NodeSignCounter().count(each.fact for each in recorded)
    fabric = view.ledger.fabric
    names = {} if fabric is None else fabric.index_of_node
    return {
        "since": since,
        "until": view.now,
        "complete": compacted <= before,
        "lemon_days": LEMON_DAYS,
        "rows": [_row(each) for each in found if each.node in names],
    }


def _row(signs: NodeSigns) -> Json:
    counts = {kind: signs.count_of_kind[kind] for kind in KINDS}
    days, last_at = len(signs.days), signs.last_at
    return {"node": signs.node, "lemon": signs.is_lemon, "days": days, **counts, "last_at": last_at}
