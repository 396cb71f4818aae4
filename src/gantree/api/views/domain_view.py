"""How full the domains below one domain are, in plain JSON values of bounded size, however large the site. No HTTP.

Each row has a strip: the domains one tier further down, or the GPUs of a node, in topology order.
"""

from typing import Any, NamedTuple

import numpy as np

from gantree.api.views.node_view import state_of_node
from gantree.core.ledger.ledger import Ledger
from gantree.model.errors import NotFound
from gantree.topology.fabric.conditions import sound_nodes
from gantree.topology.fabric.fabric import Fabric, IntArray

Json = dict[str, Any]
WIDEST_STRIP = 64
"""Of more domains neighbours are counted together."""


class _Counts(NamedTuple):
    """GPUs by node: all, those of usable nodes, and the free ones of these."""

    gpus: IntArray
    usable: IntArray
    free: IntArray


def domains_json(ledger: Ledger, inside: str | None, limit: int) -> Json:
    """The domains in a domain (None: the site), at most limit of them. Raises NotFound.

    A domain with a single domain in it is passed over.
    """
    fabric = ledger.fabric
    if fabric is None:
        empty = {"gpus": 0, "usable": 0, "free": 0, "domains": [], "left_out": 0}
        return {"cluster": None, "inside": None, "parent": None, "tier": None, **empty}
    tier, domain = _descended(fabric, *_found(fabric, inside), is_site=inside is None)
    counts = _counts(ledger)
    nodes = _nodes(fabric, tier, domain)
    below = min(tier + 1, fabric.node_tier)
    first, end = (
        (domain, domain + 1) if tier == fabric.node_tier else _children(fabric, tier, domain)
    )
    shown = range(first, min(end, first + limit))
    return {
        "cluster": fabric.cluster.name,
        "inside": _name(fabric, tier, domain) if tier else None,
        "parent": _parent(fabric, tier, domain),
        "tier": fabric.tiers[below],
        "gpus": int(counts.gpus[nodes].sum()),
        "usable": int(counts.usable[nodes].sum()),
        "free": int(counts.free[nodes].sum()),
        "domains": [_row(ledger, fabric, counts, below, number) for number in shown],
        "left_out": end - first - len(shown),
    }


def _counts(ledger: Ledger) -> _Counts:
    rooms = ledger.rooms()
    fabric = rooms.fabric
    return _Counts(
        fabric.gpus_of_node,
        fabric.gpus_of_node * rooms.usable_node,
        rooms.free_gpus_of_node * rooms.usable_node,
    )


def _found(fabric: Fabric, inside: str | None) -> tuple[int, int]:
    if inside is None:
        return 0, 0
    for tier, numbers in enumerate(fabric.index_of_domain):
        if tier and inside in numbers:
            return tier, numbers[inside]
    raise NotFound(f"there is no domain {inside}")


def _descended(fabric: Fabric, tier: int, domain: int, *, is_site: bool) -> tuple[int, int]:
    """The narrowest domain that is as large as this one, above the nodes; of the site alone."""
    while is_site and tier + 1 < fabric.node_tier:
        first, end = _children(fabric, tier, domain)
        if end - first != 1:
            break
        tier, domain = tier + 1, first
    return tier, domain


def _children(fabric: Fabric, tier: int, domain: int) -> tuple[int, int]:
    first, end = fabric.first_child_of_domain[tier][domain : domain + 2].tolist()
    return first, end


def _nodes(fabric: Fabric, tier: int, domain: int) -> slice:
    first, end = fabric.first_node_of_domain[tier][domain : domain + 2].tolist()
    return slice(first, end)


def _name(fabric: Fabric, tier: int, domain: int) -> str:
    if tier == fabric.node_tier:
        return str(fabric.nodes[_nodes(fabric, tier, domain).start].name)
    return str(fabric.names_of_domain[tier][domain])


def _parent(fabric: Fabric, tier: int, domain: int) -> str | None:
    """The domain above; None for one below the site."""
    if tier <= 1:
        return None
    node = _nodes(fabric, tier, domain).start
    return _name(fabric, tier - 1, int(fabric.domain_of_node[tier - 1][node]))


def _row(ledger: Ledger, fabric: Fabric, counts: _Counts, tier: int, domain: int) -> Json:
    nodes = _nodes(fabric, tier, domain)
    is_node = tier == fabric.node_tier
    return {
        "name": _name(fabric, tier, domain),
        "gpus": int(counts.gpus[nodes].sum()),
        "usable": int(counts.usable[nodes].sum()),
        "free": int(counts.free[nodes].sum()),
        "state": _state(ledger, fabric, nodes.start) if is_node else "",
        "strip": _gpus(ledger, counts, nodes.start) if is_node else _strip(fabric, counts, tier, domain),
    }  # fmt: skip


def _state(ledger: Ledger, fabric: Fabric, node: int) -> str:
    name = fabric.nodes[node].name
    if ledger.rooms().usable_node[node]:
        return "ready"
    busy = bool(ledger.rooms().holders(name))
    return state_of_node(ledger, name, busy=busy, sound=bool(sound_nodes(fabric)[node]))


def _gpus(ledger: Ledger, counts: _Counts, node: int) -> list[list[int]]:
    """[usable, free] of each GPU of a node."""
    rooms = ledger.rooms()
    usable = int(counts.usable[node] > 0)
    free = frozenset(rooms.free_gpus(rooms.fabric.nodes[node].name))
    return [[usable, int(usable and gpu in free)] for gpu in range(int(counts.gpus[node]))]


def _strip(fabric: Fabric, counts: _Counts, tier: int, domain: int) -> list[list[int]]:
    """[usable, free] of each domain inside; of each run of neighbours where there are many."""
    first, end = _children(fabric, tier, domain)
    step = -(-(end - first) // WIDEST_STRIP)
    starts = fabric.first_node_of_domain[tier + 1][first:end:step]
    nodes = _nodes(fabric, tier, domain)
    usable, free = (
        np.add.reduceat(each[nodes], starts - nodes.start).tolist()
        for each in (counts.usable, counts.free)
    )
    return [list(pair) for pair in zip(usable, free, strict=True)]
