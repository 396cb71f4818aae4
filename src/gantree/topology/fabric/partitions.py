"""Other partitions of the same nodes: power feeds, maintenance windows, a second topology.

They are no tiers: they need not nest in the tree, their domains need not be contiguous in node order, and a node may
be in none of them. So each keeps an index of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gantree.topology.fabric.fabric import Fabric, IntArray

NO_DOMAIN = -1
"""Number of the domain of a node that a partition does not name."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """One division of a fabric's nodes. Domains are numbered in the order in which nodes name them.

    domain_of_node[node] is NO_DOMAIN for a node that is in none.
    """

    name: str
    names_of_domain: tuple[str, ...]
    domain_of_node: IntArray

    def nodes_of_domain(self, domain: int) -> IntArray:
        """Indices of the nodes of a domain, rising."""
        return np.flatnonzero(self.domain_of_node == domain).astype(np.int64)

    def nodes_per_domain(self) -> IntArray:
        """How many nodes each domain has."""
        members = self.domain_of_node[self.domain_of_node != NO_DOMAIN]
        return np.bincount(members, minlength=len(self.names_of_domain)).astype(np.int64)


def partitions_of(fabric: Fabric) -> Mapping[str, Partition]:
    """Return all partitions of a fabric by name, in the order in which its nodes name them."""
    names = dict.fromkeys(name for node in fabric.nodes for name, _ in node.partitions)
    return {name: _partition(fabric, name) for name in names}


def _partition(fabric: Fabric, name: str) -> Partition:
    number_of_domain: dict[str, int] = {}
    domain_of_node = np.full(len(fabric.nodes), NO_DOMAIN, dtype=np.int64)
    for index, node in enumerate(fabric.nodes):
        domain = dict(node.partitions).get(name)
        if domain is not None:
            number = number_of_domain.setdefault(domain, len(number_of_domain))
            domain_of_node[index] = number
    return Partition(name, tuple(number_of_domain), domain_of_node)
