"""Derives the health of nodes from what exporters report of their GPUs.

A GPU of which one of the signs of `telemetry.dcgm_health` says that what runs on it will fail makes its node unwell. It
is the node, not the GPU, because with device plugins the kubelet picks the devices: whoever is let in may be given the
broken one. It is gantree's own cordon and no write to the Node: others' schedulers are others' business, and gantree
needs no right to change nodes.

A node is well again once all its GPUs were seen clean for CLEAN_S without a break; what is not seen changes nothing,
either way. While it is unwell, what was found only adds up. An operator may uncordon it at any time (`gantree
uncordon`): then it counts as well until something else is found. All this is on record, so a restart forgets nothing
but since when GPUs are clean.

What takes out many nodes at once is more likely a mistake (a driver, an exporter) than so many broken GPUs: no more
than MOST_SHARE of the nodes are called unwell, and the log says so.
"""

import logging
from collections.abc import Iterable, Mapping

from gantree.core.ledger.ledger import Ledger
from gantree.model.events import HealthObserved
from gantree.telemetry.dcgm_health import GpuWatch, SignsOfGpu, has_xid

SOURCE = "dcgm"
CLEAN_S = 900.0
MOST_SHARE = 0.2
MOST_FOUND = 8
"""So many findings of one node are named."""

log = logging.getLogger(__name__)


class HealthWatch:
    """The last readings of each GPU, and since when nodes are without faults."""

    def __init__(self, clean_s: float = CLEAN_S) -> None:
        self._clean_s = clean_s
        self._watches: dict[tuple[str, int], GpuWatch] = {}
        self._clean_since: dict[str, float] = {}
        self._spared: dict[str, None] = {}
        self._told = 0

    def update(
        self, told: Mapping[str, SignsOfGpu], ledger: Ledger, now: float, epoch: int
    ) -> list[HealthObserved]:
        """What follows from the signs of the nodes that were asked and answered."""
        events: list[HealthObserved] = []
        for node in [node for node in self._clean_since if node not in told]:
            del self._clean_since[node]
        for node, signs in told.items():
            before = on_record(ledger, node)
            reason = self._reason(node, signs, ledger, before, now)
            if reason != before and (before or not reason or self._may(node, ledger, events)):
                events.append(self._event(node, reason, now, epoch))
        return events

    def _reason(self, node: str, signs: SignsOfGpu, ledger: Ledger, before: str, now: float) -> str:
        """What is to be on record of a node, where this was before."""
        found = [
            f"GPU {gpu}: {what}"
            for gpu in sorted(signs)
            for what in self._watches.setdefault((node, gpu), GpuWatch()).look(signs[gpu], now)
        ]
        if found or not _is_clean(node, signs, ledger):
            self._clean_since.pop(node, None)
            return _joined(before, found)
        since = self._clean_since.setdefault(node, now)
        return before if now - since < self._clean_s else ""

    def _may(self, node: str, ledger: Ledger, events: Iterable[HealthObserved]) -> bool:
        """Whether one more node may be called unwell."""
        nodes = 0 if ledger.fabric is None else len(ledger.fabric.nodes)
        told = (each.get(SOURCE) for each in ledger.site.unwell.values())
        unwell = sum(each is not None and not each.forgiven for each in told)
        unwell += sum(bool(event.reason) for event in events)
        if unwell < max(1, int(nodes * MOST_SHARE)):
            self._spared.pop(node, None)
            return True
        if node not in self._spared:
            self._spared[node] = None
            log.error("node %s looks unwell, as %d do: that many are not taken out", node, unwell)
        return False

    def _event(self, node: str, reason: str, now: float, epoch: int) -> HealthObserved:
        self._told += 1
        return HealthObserved(
            id=f"health/{node}/{epoch}.{self._told}",
            observed_at=now,
            node=node,
            source=SOURCE,
            reason=reason,
        )


def on_record(ledger: Ledger, node: str) -> str:
    """What is on record of a node from what exporters told, be it forgiven or not."""
    illness = ledger.site.unwell.get(node, {}).get(SOURCE)
    return "" if illness is None else illness.reason


def _is_clean(node: str, signs: SignsOfGpu, ledger: Ledger) -> bool:
    """Whether every GPU of a node is there and tells no XID at all: one that fell off the bus may not be told of."""
    fabric = ledger.fabric
    if fabric is None or node not in fabric.index_of_node:
        return False
    gpus = fabric.machine_of_node(fabric.index_of_node[node]).gpus
    return len(signs) >= gpus and not any(has_xid(each) for each in signs.values())


def _joined(before: str, found: Iterable[str]) -> str:
    """What was found adds up in the order in which it was."""
    parts = dict.fromkeys((*filter(None, before.split("; ")), *found))
    return "; ".join(list(parts)[:MOST_FOUND])
