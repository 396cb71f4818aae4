"""The topology tree of a cluster as immutable arrays.

Nodes are numbered so that the nodes of one domain of any tier are a contiguous range; a tier is then one array,
`first_node_of_domain[tier][domain]`, with one more entry than it has domains. Domains of a tier are numbered in
node order too, so the children of a domain are a contiguous range of the next tier. Order is that of the cluster
file: a domain stands where its first node stood.

Tier 0 is "fabric", whose one domain holds everything; the last tier is "node", whose domain d is node d.
Who holds what is in `occupancy`, what is broken or busy in `conditions`; what is no tree keeps an index of its own:
`partitions`, `rails`, `tori`.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import accumulate, islice

import numpy as np
from numpy.typing import NDArray

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.errors import BadInput
from gantree.model.placements import FABRIC_TIER, Domain

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Labels = tuple[tuple[str, str], ...]

MAX_NAMES_FOR_A_HINT = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """A cluster's tree. Build it with `Fabric.build`; nothing in it changes afterwards.

    domain_of_node[tier][node] and first_node_of_domain[tier][domain] are inverse to each other;
    first_child_of_domain[tier][domain] counts domains of tier + 1 and is missing for the node tier;
    names_of_domain[tier][domain] are paths from the widest tier ("s0/l0"; "" for the fabric).
    index_of_domain[tier][name] is the way back, where a node goes by its name alone.
    uplink_GBps_of_domain[tier][domain] is what all up-links of a domain carry together in one direction: what the
    site says of the domain, or of its tier; of a node also the NICs near its GPUs; nan where nothing is known, and
    inf for the fabric, which nothing leaves.
    Arrays over the domains of all tiers at once have those of tier t from first_of_tier[t] on; flat_path_of_node[node,
    tier] is where a node's domains stand in them. nodes_named are masks of nodes to which searches have given a name.
    """

    cluster: Cluster
    tiers: tuple[str, ...]
    nodes: tuple[Node, ...]
    index_of_node: dict[str, int]
    machines: tuple[Machine, ...]
    machine_index_of_node: IntArray
    gpus_of_node: IntArray
    most_gpus_of_node: int
    has_spot: bool
    has_taints: bool
    domain_of_node: tuple[IntArray, ...]
    first_node_of_domain: tuple[IntArray, ...]
    first_child_of_domain: tuple[IntArray, ...]
    names_of_domain: tuple[tuple[str, ...], ...]
    index_of_domain: tuple[Mapping[str, int], ...]
    uplink_GBps_of_domain: tuple[FloatArray, ...]
    first_of_tier: tuple[int, ...]
    flat_path_of_node: IntArray
    nodes_named: dict[Hashable, BoolArray] = field(default_factory=dict)
    _nodes_with: dict[tuple[Labels, tuple[str, ...]], BoolArray] = field(default_factory=dict)
    _values_of: dict[str, tuple[dict[str, int], IntArray]] = field(default_factory=dict)

    @classmethod
    def build(cls, cluster: Cluster) -> "Fabric":
        """Number the nodes and domains of a cluster.

        Raises BadInput where the cluster contradicts itself: an unknown machine, a node named twice, a place
        with too few or too many names, tiers that do not end with "node", facts of a domain that is not there.
        """
        _check(cluster)
        nodes = _in_topology_order(cluster.nodes, len(cluster.tiers) - 1)
        index_of_node = {node.name: index for index, node in enumerate(nodes)}
        paths = [_paths(node) for node in nodes]
        domain_of_node = tuple(
            _number([path[tier] for path in paths]) for tier in range(len(cluster.tiers) + 1)
        )
        first_node = tuple(_firsts(domains) for domains in domain_of_node)
        machines = tuple(cluster.machines.values())
        number_of_machine = {name: number for number, name in enumerate(cluster.machines)}
        machine_of_node = np.array([number_of_machine[n.machine] for n in nodes], dtype=np.int64)
        names_of_domain = tuple(
            tuple("/".join(paths[node][tier]) for node in first_node[tier][:-1])
            for tier in range(len(cluster.tiers) + 1)
        )
        index_of_domain = (*map(_numbered, names_of_domain[:-1]), index_of_node)
        first_of_tier = (0, *accumulate(map(len, names_of_domain)))
        return cls(
            cluster=cluster,
            tiers=(FABRIC_TIER, *cluster.tiers),
            nodes=nodes,
            index_of_node=index_of_node,
            machines=machines,
            machine_index_of_node=machine_of_node,
            gpus_of_node=np.array([m.gpus for m in machines], dtype=np.int64)[machine_of_node],
            most_gpus_of_node=max(cluster.machines[node.machine].gpus for node in nodes),
            has_spot=any(node.spot is not None for node in nodes),
            has_taints=any(node.taints for node in nodes),
            domain_of_node=domain_of_node,
            first_node_of_domain=first_node,
            first_child_of_domain=tuple(
                _first_children(first_node[tier], domain_of_node[tier + 1])
                for tier in range(len(cluster.tiers))
            ),
            names_of_domain=names_of_domain,
            index_of_domain=index_of_domain,
            uplink_GBps_of_domain=_uplinks(cluster, index_of_domain, machine_of_node),
            first_of_tier=first_of_tier,
            flat_path_of_node=np.stack(domain_of_node, axis=1) + np.array(first_of_tier[:-1]),
        )

    def restated(self, cluster: Cluster) -> "Fabric":
        """The same tree for a cluster of which only the labels of nodes, or health and load of links, are others."""
        known = {node.name: node for node in cluster.nodes}
        nodes = tuple(known[node.name] for node in self.nodes)
        return replace(
            self, cluster=cluster, nodes=nodes, nodes_named={}, _nodes_with={}, _values_of={}
        )

    def machine_of_node(self, node: int) -> Machine:
        """The machine model of a node, by index."""
        return self.machines[int(self.machine_index_of_node[node])]

    @property
    def node_tier(self) -> int:
        """Number of the node tier: the last."""
        return len(self.tiers) - 1

    def domains(self, tier: int) -> int:
        """Number of domains of a tier."""
        return len(self.names_of_domain[tier])

    def domain(self, tier: int, number: int) -> Domain:
        """A domain by tier and number, as people name it."""
        return Domain(self.tiers[tier], self.names_of_domain[tier][number])

    def find(self, tier: str, name: str) -> tuple[int, int]:
        """(tier, domain) of a domain by its path ("s0/l0"), a node by its name; BadInput where there is none."""
        return _find(self.cluster, self.index_of_domain, tier, name)

    def narrowest_domain(self, nodes: Iterable[int]) -> tuple[int, int]:
        """(tier, domain) of the narrowest domain that holds all the nodes; the fabric for none."""
        indices = sorted(nodes)
        if not indices:
            return 0, 0
        for tier in range(self.node_tier, 0, -1):
            domains = self.domain_of_node[tier]
            if domains[indices[0]] == domains[indices[-1]]:
                return tier, int(domains[indices[0]])
        return 0, 0

    def nodes_with(self, labels: Labels, models: tuple[str, ...]) -> BoolArray:
        """Mask of the nodes that admit who asks for these labels and, where models are named, one of these GPUs."""
        key = (labels, models)
        mask = self._nodes_with.get(key)
        if mask is None:
            mask = self._nodes_with[key] = self._admitted(labels, models)
        return mask

    def values_of(self, key: str) -> tuple[dict[str, int], IntArray]:
        """Numbers of the values that a label has, and that of each node; -1 for a node without it."""
        known = self._values_of.get(key)
        if known is None:
            values = [dict(node.labels).get(key) for node in self.nodes]
            there = (value for value in values if value is not None)
            number_of_value = _numbered(dict.fromkeys(there))
            numbers = [-1 if value is None else number_of_value[value] for value in values]
            known = self._values_of[key] = number_of_value, np.array(numbers, dtype=np.int64)
        return known

    def _admitted(self, labels: Labels, models: tuple[str, ...]) -> BoolArray:
        of_machine = [not models or machine.gpu in models for machine in self.machines]
        admitted: BoolArray = np.array(of_machine, dtype=np.bool_)[self.machine_index_of_node]
        if labels or self.has_spot or self.has_taints:
            admitted &= np.array([node.admits(labels) for node in self.nodes], dtype=np.bool_)
        return admitted


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _find(
    cluster: Cluster, index_of_domain: Sequence[Mapping[str, int]], tier: str, name: str
) -> tuple[int, int]:
    tiers = (FABRIC_TIER, *cluster.tiers)
    if tier not in tiers:
        raise BadInput(
            f"cluster {cluster.name}: there is no tier {tier!r}, only {', '.join(tiers)}"
        )
    number = tiers.index(tier)
    domain = index_of_domain[number].get(name)
    if domain is None:
        near = get_close_matches(name, islice(index_of_domain[number], MAX_NAMES_FOR_A_HINT), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadInput(f"cluster {cluster.name}: there is no {tier} {name!r}{hint}")
    return number, domain


def _uplinks(
    cluster: Cluster, index_of_domain: Sequence[Mapping[str, int]], machine_of_node: IntArray
) -> tuple[FloatArray, ...]:
    """Up-link capacities by tier and domain: of the domain itself, else of its tier, else of a node's NICs."""
    capacities = [np.full(len(index), np.nan) for index in index_of_domain]
    capacities[0][:] = np.inf
    of_machine = np.array([_nics_GBps(machine) for machine in cluster.machines.values()])
    capacities[-1] = of_machine[machine_of_node]
    for number, tier in enumerate(cluster.tiers, start=1):
        link = cluster.links.get(tier)
        if link is not None and link.uplink_GBps is not None:
            capacities[number][:] = link.uplink_GBps
    for facts in cluster.domains:
        number, domain = _find(cluster, index_of_domain, facts.tier, facts.name)
        if facts.uplink_GBps is not None:
            capacities[number][domain] = facts.uplink_GBps
    return tuple(capacities)


def _nics_GBps(machine: Machine) -> float:
    """What the NICs near a GPU (all NICs, where none is) carry together; nan where one of them is not told."""
    near = [nic for nic in machine.nics if nic.near] or machine.nics
    rates = [nic.bandwidth_GBps for nic in near]
    return sum(rate or np.nan for rate in rates) if rates else np.nan


def _check(cluster: Cluster) -> None:
    if not cluster.tiers or cluster.tiers[-1] != "node":
        raise BadInput(f"cluster {cluster.name}: tiers must end with node, found {cluster.tiers}")
    if len({FABRIC_TIER, *cluster.tiers}) != len(cluster.tiers) + 1:
        raise BadInput(f"cluster {cluster.name}: a tier is named twice or {FABRIC_TIER!r}")
    if not cluster.nodes:
        raise BadInput(f"cluster {cluster.name}: has no nodes")
    seen: set[str] = set()
    for node in cluster.nodes:
        if node.name in seen:
            raise BadInput(f"cluster {cluster.name}: node {node.name} is there twice")
        seen.add(node.name)
        if node.machine not in cluster.machines:
            raise BadInput(f"node {node.name}: unknown machine {node.machine}")
        if len(node.at) != len(cluster.tiers) - 1:
            raise BadInput(f"node {node.name}: place {node.at} does not name {cluster.tiers[:-1]}")


def _paths(node: Node) -> list[tuple[str, ...]]:
    """Paths of the node's domains, from the fabric's empty one to its own."""
    full = (*node.at, node.name)
    return [full[:tier] for tier in range(len(full) + 1)]


def _in_topology_order(nodes: Sequence[Node], outer_tiers: int) -> tuple[Node, ...]:
    """Nodes of one domain beside each other, each domain where its first node stood."""
    first_seen: dict[tuple[str, ...], int] = {}
    for position, node in enumerate(nodes):
        for tier in range(1, outer_tiers + 1):
            first_seen.setdefault(node.at[:tier], position)

    def place(node: Node) -> tuple[int, ...]:
        return tuple(first_seen[node.at[:tier]] for tier in range(1, outer_tiers + 1))

    return tuple(sorted(nodes, key=place))


def _number(paths: Sequence[tuple[str, ...]]) -> IntArray:
    """Number equal neighbours alike, counting up."""
    numbers: list[int] = []
    for position, path in enumerate(paths):
        new = position > 0 and path != paths[position - 1]
        numbers.append((numbers[-1] if numbers else 0) + new)
    return np.array(numbers, dtype=np.int64)


def _firsts(domain_of_node: IntArray) -> IntArray:
    """First node of each domain, and the number of nodes at the end."""
    starts = np.flatnonzero(np.diff(domain_of_node, prepend=-1))
    return np.append(starts, len(domain_of_node)).astype(np.int64)


def _first_children(first_node: IntArray, domain_of_node_below: IntArray) -> IntArray:
    """First child of each domain, and the number of all children at the end."""
    children = int(domain_of_node_below[-1]) + 1
    return np.append(domain_of_node_below[first_node[:-1]], children).astype(np.int64)
