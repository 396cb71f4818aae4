"""Takes lemons out of use, as a health source does: nodes that showed signs on many days (`accounting.node_signs`).

Those with signs on the most days go first; where a fifth of the nodes is out already, for whatever faults, the others
stay in use. An operator who uncordons a lemon overrules the days that are known; signs on a further day count anew. A
node that is no lemon any more, since days went by without signs, is well again.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from gantree.accounting.node_signs import FAULT, LEMON, LEMON_DAYS_OF, LINK, OUT, SLOW
from gantree.control.nodes.blast_radius import nodes_out, why_kept
from gantree.core.ledger.ledger import Ledger
from gantree.model.events import HealthObserved
from gantree.text.words import counted

WORDS = {
    FAULT: ("fault", "faults"),
    OUT: ("time out of use", "times out of use"),
    LINK: ("worn link", "worn links"),
    SLOW: ("slow rank", "slow ranks"),
}

log = logging.getLogger(__name__)


class LemonReports:
    """Makes events of the lemons that were counted."""

    def __init__(self) -> None:
        self._told = 0

    def events(
        self,
        lemons: Iterable[Mapping[str, Any]],
        ledger: Ledger,
        now: float,
        epoch: int,
    ) -> list[HealthObserved]:
        """What follows from the lemons, as `node_signs_view.lemons` has them; now is in seconds."""
        row_of_node = {row["node"]: row for row in lemons}
        well = [
            node
            for node, told in ledger.site.unwell.items()
            if LEMON in told and node not in row_of_node
        ]
        events = [self._event(node, "", "", now, epoch) for node in well]
        out = set(nodes_out(ledger))
        for node, row in row_of_node.items():
            kept = why_kept(ledger, node, out)
            reasons = _reasons(row, reason_of(row), kept, ledger)
            if reasons and not kept:
                out.add(node)
            events += [
                self._event(node, each, kept if each else "", now, epoch) for each in reasons
            ]
        return events

    def _event(self, node: str, reason: str, kept: str, now: float, epoch: int) -> HealthObserved:
        self._told += 1
        if reason:
            log.warning("node %s is a lemon: %s%s", node, reason, f"; kept, {kept}" if kept else "")
        return HealthObserved(
            id=f"lemon/{node}/{epoch}.{self._told}",
            observed_at=now,
            node=node,
            source=LEMON,
            reason=reason,
            kept=kept,
        )


def _reasons(row: Mapping[str, Any], reason: str, kept: str, ledger: Ledger) -> tuple[str, ...]:
    """What is to be reported of a lemon, in this order; nothing where it is on record, or an operator overrules it."""
    before = ledger.site.unwell.get(row["node"], {}).get(LEMON)
    if before is None:
        return () if row["forgiven"] else (reason,)
    if before.forgiven != row["forgiven"]:  # overruled after the lemons were counted
        return ()
    if before.forgiven:
        return ("", reason) if row["grown"] else ()
    is_known = before.reason == reason and bool(before.kept) == bool(kept)
    return () if is_known else (reason,)


def reason_of(row: Mapping[str, Any]) -> str:
    """The signs of a lemon in words: "signs on 6 of 28 days: 3 faults, 1 slow rank"."""
    counts = [counted(row[kind], *words) for kind, words in WORDS.items() if row[kind]]
    return f"signs on {row['days']} of {LEMON_DAYS_OF} days: {', '.join(counts)}"
