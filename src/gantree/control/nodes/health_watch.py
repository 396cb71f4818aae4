"""Derives the health of nodes from what exporters report of their GPUs.

A GPU of which one of the signs of `telemetry.dcgm.health` says that what runs on it will fail makes its node unwell. It
is the node, not the GPU, because with device plugins the kubelet picks the devices: whoever is let in may be given the
broken one. It is gantree's own cordon and no write to the Node: others' schedulers are others' business, and gantree
needs no right to change nodes.

A node is well again once all its GPUs were seen clean for CLEAN_S without a break; what is not seen changes nothing,
either way. While it is unwell, what was found only adds up. An operator may uncordon it at any time (`gantree
uncordon`): then it counts as well until something else is found. All this is on record, so a restart forgets nothing
but since when GPUs are clean.

What takes out many nodes at once is more likely a mistake (a driver, an exporter) than so many broken GPUs: no more
than a fifth of the nodes are taken out (`blast_radius`). The others are reported too, with the reason why they stay in
use, and the one that has shown its fault longest is taken out once fewer are.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from gantree.control.nodes.blast_radius import nodes_out, why_kept
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.site import Illness
from gantree.model.events import HealthObserved
from gantree.telemetry.dcgm.health import GpuWatch, SignsOfGpu, has_xid
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.xids import lost_gpus_in

SOURCE = "dcgm"
CLEAN_S = 900.0
MOST_FOUND = 8
"""So many findings of one node are named."""

log = logging.getLogger(__name__)


class SignsFound(NamedTuple):
    """What was found on a node: faults in words, how many GPUs told anything, and whether one told any XID."""

    faults: tuple[str, ...]
    gpus: int
    has_xid: bool


class HealthWatch:
    """The last readings of each GPU, and since when nodes are without faults."""

    def __init__(self, clean_s: float = CLEAN_S, *, is_exact: bool = True) -> None:
        """is_exact: a gang holds the GPUs of its placement; with device plugins their indices are only counts."""
        self._clean_s = clean_s
        self._is_exact = is_exact
        self._watches: dict[tuple[str, int], GpuWatch] = {}
        self._clean_since: dict[str, float] = {}
        self._told = 0

    def judge(
        self, told: Mapping[str, SignsOfGpu], fabric: Fabric | None, now: float
    ) -> dict[str, SignsFound]:
        """What the signs of the nodes say that were asked and answered. It looks at every GPU."""
        return {node: self._signs_found(node, signs, now) for node, signs in told.items()}

    def _signs_found(self, node: str, signs: SignsOfGpu, now: float) -> SignsFound:
        faults = list[str]()
        for gpu in sorted(signs):
            watch = self._watches.get((node, gpu))
            if watch is None:
                watch = self._watches[node, gpu] = GpuWatch()
            faults += [f"GPU {gpu}: {what}" for what in watch.look(signs[gpu], now)]
        return SignsFound(tuple(faults), len(signs), any(map(has_xid, signs.values())))

    def events(
        self, judged: Mapping[str, SignsFound], ledger: Ledger, now: float, epoch: int
    ) -> list[HealthObserved]:
        """What follows from what was found on nodes."""
        for node in [node for node in self._clean_since if node not in judged]:
            del self._clean_since[node]
        reasons = {
            node: self._reason(node, found, ledger, on_record(ledger, node), now)
            for node, found in judged.items()
        }
        limit = _Limit(ledger, [node for node, reason in reasons.items() if not reason])
        events = list[HealthObserved]()
        for node in sorted(reasons, key=lambda each: _shown_since(ledger, each)):
            kept = limit.kept(node, reasons[node])
            if kept is not None:
                events.append(self._event(node, reasons[node], kept, now, epoch))
        return events

    def _reason(self, node: str, found: SignsFound, ledger: Ledger, before: str, now: float) -> str:
        """What is to be on record of a node, where this was before."""
        if found.faults or not _is_clean(node, found, ledger):
            self._clean_since.pop(node, None)
            return joined(before, found.faults)
        since = self._clean_since.setdefault(node, now)
        return before if now - since < self._clean_s else ""

    def _event(self, node: str, reason: str, kept: str, now: float, epoch: int) -> HealthObserved:
        self._told += 1
        lost = lost_gpus_in(reason)
        return HealthObserved(
            id=f"health/{node}/{epoch}.{self._told}",
            observed_at=now,
            node=node,
            source=SOURCE,
            reason=reason,
            kept=kept,
            lost_gpus=lost if lost is None or self._is_exact else (),
        )


class _Limit:
    """The nodes that are out by any source; those that DCGM calls well again no longer count for it."""

    def __init__(self, ledger: Ledger, well: Collection[str]) -> None:
        self._ledger = ledger
        self._out = set(nodes_out(ledger, SOURCE, well))

    def kept(self, node: str, reason: str) -> str | None:
        """Why a node with this fault stays in use, "" if it does not or is well; None if all of it is on record."""
        before = _illness(self._ledger, node)
        if not reason:
            return None if before is None else ""
        is_known = before is not None and before.reason == reason
        if is_known and before is not None and (before.takes_out or before.forgiven):
            return None
        kept = why_kept(self._ledger, node, self._out)
        if not kept:
            self._out.add(node)
        elif is_known:
            return None
        else:
            log.error("node %s looks unwell and stays in use, for %s", node, kept)
        return kept


def _illness(ledger: Ledger, node: str) -> Illness | None:
    return ledger.site.unwell.get(node, {}).get(SOURCE)


def _shown_since(ledger: Ledger, node: str) -> float:
    """Since when a node shows its fault: the earliest is taken out first, those that show a new one last."""
    illness = _illness(ledger, node)
    return inf if illness is None else illness.since


def on_record(ledger: Ledger, node: str) -> str:
    """What is on record of a node from what exporters told, be it forgiven or not."""
    illness = _illness(ledger, node)
    return "" if illness is None else illness.reason


def _is_clean(node: str, found: SignsFound, ledger: Ledger) -> bool:
    """Whether every GPU of a node is there and tells no XID at all: one that fell off the bus may not be told of."""
    fabric = ledger.fabric
    if fabric is None or node not in fabric.index_of_node:
        return False
    gpus = fabric.machine_of_node(fabric.index_of_node[node]).gpus
    return found.gpus >= gpus and not found.has_xid


def joined(before: str, found: Iterable[str]) -> str:
    """What was found adds up in the order in which it was."""
    parts = dict.fromkeys((*filter(None, before.split("; ")), *found))
    return "; ".join(list(parts)[:MOST_FOUND])
