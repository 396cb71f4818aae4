"""Nodes by how fast traffic is on them: what a search by counts alone does not see.

Counting domains finds the fastest place where all domains of a tier are alike. Where they are not (machines of several
models, a sick link, up-links of other widths), nodes are sorted into *kinds*: of one kind are those whose machine, NICs
and every domain around them are alike to traffic (`topology.terrain`). Each kind gets a name in `Fabric.nodes_named`,
so that a gang can be searched for on it alone. Data at hand divides nodes in the same way (`placement.locality`).

Nodes that are *whole* have nothing worn, busy or narrower than elsewhere around them: for their sake a gang may use
more domains than it would have to.
"""

from collections.abc import Hashable
from functools import lru_cache

import numpy as np

from gantree.topology.alike import alike
from gantree.topology.cost import pricer_of
from gantree.topology.fabric import BoolArray, Fabric, IntArray

WHOLE: Hashable = "whole"
"""Name of the nodes of which nothing is worn or busy, nor narrower than other domains of its tier."""

MOST_KINDS = 8
"""Kinds that are told apart, those with most nodes first; each is one more search for a gang."""


@lru_cache(maxsize=8)
def kinds_of(fabric: Fabric) -> tuple[Hashable, ...]:
    """Names of the kinds of nodes, most nodes first; () where all nodes are of one kind."""
    terrain = pricer_of(fabric).terrain
    keys: list[IntArray] = [terrain.kind_of_node]
    for tier in range(1, fabric.node_tier + 1):
        kind_of_domain = terrain.tiers[tier].kind_of_domain
        number = {kind: number for number, kind in enumerate(dict.fromkeys(kind_of_domain))}
        numbers = np.array([number[kind] for kind in kind_of_domain], dtype=np.int64)
        keys.append(numbers[fabric.domain_of_node[tier]])
    first, kind_of_node = alike(*keys)
    if len(first) == 1:
        return ()
    nodes_of_kind = np.bincount(kind_of_node).tolist()
    order = sorted(range(len(first)), key=lambda kind: -nodes_of_kind[kind])[:MOST_KINDS]
    names: list[Hashable] = []
    for kind in order:
        name = ("kind", kind)
        fabric.nodes_named[name] = kind_of_node == kind
        names.append(name)
    whole = _whole(fabric)
    if whole.any() and not whole.all():
        fabric.nodes_named[WHOLE] = whole
        names.append(WHOLE)
    return tuple(names)


def _whole(fabric: Fabric) -> BoolArray:
    terrain = pricer_of(fabric).terrain
    whole: BoolArray = terrain.kind_of_node < len(fabric.machines)  # others have worn NICs
    for tier in range(1, fabric.node_tier + 1):
        of_tier = terrain.tiers[tier]
        left = of_tier.uplink_GBps * of_tier.residual
        whole &= (left == left.max())[fabric.domain_of_node[tier]]
    return whole
