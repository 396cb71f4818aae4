"""The cluster described by its Node objects: the tree from labels, machines from capacity, and taints.

What changes all the time is left out: whether a node is ready is an event of its own, and taints that the control plane
puts on nodes that are not are passed over. So is a cordon, unless a gang tolerates it (`node_health.with_cordon`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Node, Wiring
from gantree.executors.kubernetes.nodes.asked_levels import tiers_of_keys
from gantree.executors.kubernetes.nodes.node_health import UNSCHEDULABLE
from gantree.executors.kubernetes.nodes.topologies import NodeTopologies
from gantree.executors.kubernetes.pods.pod_amounts import Amounts
from gantree.executors.kubernetes.pods.shapes import PODS, is_counted
from gantree.model import node_rules
from gantree.model.cluster import Cluster, Machine
from gantree.model.cluster import Node as SiteNode
from gantree.model.errors import BadInput
from gantree.model.jobs import CLAIMED_GPUS, GPU_RESOURCES
from gantree.topology.discovery.assembly import assembled
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.kubernetes import read
from gantree.topology.discovery.listings.kubernetes_nodes import MAX_GPUS, quantity
from gantree.topology.discovery.listings.label_keys import (
    HOST_KEY,
    NVLINK_KEYS,
    PLACES,
    Level,
    families,
    levels_of_keys,
)
from gantree.topology.discovery.machine_of_node import MachineChoice

SOURCE = "the cluster's nodes"
OF_CONDITIONS = "node.kubernetes.io/"
"""Taints of the control plane for what a node's conditions and spec say."""
USUAL_PODS = 110
"""How many pods a kubelet takes that does not say."""
_MEBI = 2.0**20
NO_TOPOLOGIES = NodeTopologies()


@dataclass(frozen=True, slots=True)
class SiteReading:
    """A cluster, which tier is meant by a label key, and what is missing or odd.

    labels are the keys that nodes have; asked those for which gangs have asked beyond the levels.
    """

    cluster: Cluster
    tier_of_key: Mapping[str, str]
    warnings: tuple[str, ...]
    labels: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()

    def is_new_key(self, word: str) -> bool:
        """Whether a word that means no tier is a label of nodes that may become one."""
        return word in self.labels and word not in self.asked and self.tier(word) is None

    def tier(self, word: str) -> str | None:
        """The tier that a user means by a tier's name or a label key; None where there is none."""
        tiers = {*self.cluster.tiers, "socket", "pcie", "nvlink"}
        return word if word in tiers else self.tier_of_key.get(word)

    def label_of_tier(self, word: str) -> str | None:
        """The label of nodes that has the domains of a tier, named by itself or by a label; None where none has."""
        if word in self.labels:
            return word
        keys = (key for key, tier in self.tier_of_key.items() if tier == word)
        return next((key for key in keys if key in self.labels), None)


def site_of(
    name: str,
    nodes: Iterable[Node],
    levels: Sequence[str] = (),
    told: NodeTopologies = NO_TOPOLOGIES,
    file: Cluster | None = None,
) -> SiteReading:
    """The site that nodes make; levels are label keys from wide to narrow, where others than the known are meant.

    told is what other objects tell of where nodes stand. Where a file describes the site, it says so instead.

    A node whose object cannot be made sense of is left out, with a warning: it must not hide all others. Raises
    BadInput for no node at all, and for labels that no node has.
    """
    found = [_with_topology(node, told) for node in nodes]
    try:
        return _site_of(name, found, levels, told, file)
    except BadInput as error:
        if told.topologies:
            others = NodeTopologies(warnings=told.warnings, asked=told.asked)
            reading = site_of(name, found, levels, others, file)
            lost = f"objects that tell a topology are left out: {error}"
            return replace(reading, warnings=(*reading.warnings, lost))
        odd = {node.metadata.name: trouble for node in found if (trouble := _oddity(node))}
        sound = [node for node in found if node.metadata.name not in odd]
        if not odd or not sound:
            raise error
    reading = _site_of(name, sound, levels, told, file)
    said = (f"node {name} is left out: {trouble}" for name, trouble in odd.items())
    return replace(reading, warnings=(*reading.warnings, *said))


def with_hostnames(cluster: Cluster, told: Mapping[str, Node]) -> Cluster:
    """The same with the label of hostnames, which listings leave out: pods and volumes ask for nodes by it."""
    nodes = tuple(
        replace(node, labels=tuple(sorted((*node.labels, (HOST_KEY, name)))))
        if (name := told[node.name].metadata.labels.get(HOST_KEY)) is not None
        else node
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def _with_topology(node: Node, told: NodeTopologies) -> Node:
    """A node with the labels that other objects give it, and the sockets of its GPUs where its slices tell none."""
    sockets = told.sockets_of_node.get(node.metadata.name)
    if sockets and not node.wiring.numa:
        wiring = msgspec.structs.replace(node.wiring, numa=sockets)
        node = msgspec.structs.replace(node, wiring=wiring)
    added = told.labels_of_node.get(node.metadata.name)
    if not added:
        return node
    labels = {**node.metadata.labels, **added}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))  # fmt: skip


def _oddity(node: Node) -> str | None:
    """What is wrong with a node that is no site even alone."""
    try:
        _site_of("alone", [node], (), NO_TOPOLOGIES, None)
    except BadInput as error:
        return str(error)
    return None


def _site_of(
    name: str,
    found: Sequence[Node],
    levels: Sequence[str],
    told: NodeTopologies,
    file: Cluster | None,
) -> SiteReading:
    items = [*(_with_kind(node) for node in found), *told.topologies]
    text = msgspec.json.encode({"items": items}).decode()
    read_nodes = read([(text, SOURCE)], levels or None, told.asked)
    reading, odd = _with_counts(read_nodes, {node.metadata.name: node for node in found})
    made = assembled(name, reading, MachineChoice({}, {}), SOURCE)
    cluster, lost = (made.cluster, []) if file is None else as_in_file(made.cluster, file)
    cluster = _with_devices(cluster, {node.metadata.name: node for node in found})
    cluster = replace(cluster, domains=tuple(d for d in cluster.domains if d.tier != "node"))
    keys = _tier_of_key(found, cluster, (*levels, *told.keys))
    words = {word: keys[key] for word, key in told.key_of_word.items() if key in keys}
    return SiteReading(
        cluster,
        {**tiers_of_keys(cluster, told.asked), **keys, **words},
        (*made.warnings, *odd, *lost, *told.warnings),
        frozenset(key for node in found for key in node.metadata.labels),
        frozenset(told.asked),
    )


def as_in_file(seen: Cluster, file: Cluster) -> tuple[Cluster, list[str]]:
    """The nodes that are there, standing as a file says, on the machines that it describes; and what does not agree.

    A node that the file does not know cannot be placed in its tree, so it is left out. Raises BadInput where it knows
    none of them.
    """
    of_file = {node.name: node for node in file.nodes}
    there = [node for node in seen.nodes if node.name in of_file]
    if not there:
        raise BadInput(f"the cluster file {file.name} has none of the cluster's nodes")
    nodes = tuple(_as_in_file(node, of_file[node.name]) for node in there)
    strangers = [node.name for node in seen.nodes if node.name not in of_file]
    lost = [f"node {name} is left out: the cluster file does not have it" for name in strangers]
    for node in there:
        counted, said = (seen.machines[node.machine], file.machines[of_file[node.name].machine])
        if counted.gpus != said.gpus:
            lost.append(f"node {node.name}: {counted.gpus} GPUs, the cluster file says {said.gpus}")
    domains = tuple(each for each in seen.domains if each.tier == "node")
    told = replace(file, name=seen.name, nodes=nodes, allocations=())
    return replace(told, domains=(*told.domains, *domains)), lost


def _as_in_file(node: SiteNode, told: SiteNode) -> SiteNode:
    labels = tuple(sorted({**dict(told.labels), **dict(node.labels)}.items()))
    return replace(told, labels=labels, address=node.address)


def usable(node: Node) -> bool:
    """Whether its kubelet says that it may take pods."""
    return node.is_ready and node.metadata.deletion_timestamp is None


def site_fields(node: Node) -> object:
    """What of a node the site is made of; as long as that is equal, so is the site."""
    return node.metadata.labels, node.status.allocatable, node.status.capacity, _taints(node)


def _with_kind(node: Node) -> dict[str, object]:
    """A node as listings have it. Where slices list GPUs, these are taken for the hardware of its device plugins."""
    status = node.status
    if node.wiring.gpus > max(_plugin_gpus(node)):
        capacity = {**status.capacity, GPU_RESOURCES[0]: str(node.wiring.gpus)}
        status = msgspec.structs.replace(status, capacity=capacity)
    return {"kind": "Node", "metadata": node.metadata, "spec": node.spec, "status": status}


def _plugin_gpus(node: Node) -> Iterator[float]:
    return (quantity(str(node.status.capacity.get(name, 0))) or 0.0 for name in GPU_RESOURCES)


def _with_counts(
    reading: FabricReading, told: Mapping[str, Node]
) -> tuple[FabricReading, list[str]]:
    """Where what the plugin calls GPUs are MIG instances, each counts as a GPU of no model, with a warning."""
    unknown = {
        node.name: _counted_gpus(told[node.name]) for node in reading.nodes if node.gpus is None
    }
    odd = [
        f"node {name}: its {count} GPUs are parts of GPUs, or more than can be"
        for name, count in unknown.items()
    ]
    nodes = tuple(
        replace(node, gpus=unknown[node.name], gpu=None) if node.name in unknown else node
        for node in reading.nodes
    )
    return replace(reading, nodes=nodes), odd


def _counted_gpus(node: Node) -> int:
    count = int(max(_plugin_gpus(node)))
    return count if count <= MAX_GPUS else 0


def _with_devices(cluster: Cluster, told: Mapping[str, Node]) -> Cluster:
    """The same with taints, and with machines that count what else their nodes have."""
    machines: dict[str, Machine] = {}
    number_of: dict[object, str] = {}
    nodes = []
    for node in cluster.nodes:
        devices = tuple(sorted(_devices(told[node.name]).items()))
        wiring = told[node.name].wiring
        name = number_of.get((node.machine, devices, wiring))
        if name is None:
            name = (
                node.machine if node.machine not in machines else f"{node.machine}.{len(machines)}"
            )
            number_of[node.machine, devices, wiring] = name
            machine = replace(cluster.machines[node.machine], name=name, devices=devices)
            machines[name] = _wired(machine, wiring)
        nodes.append(_tainted(replace(node, machine=name), told[node.name]))
    return replace(cluster, machines=machines, nodes=tuple(nodes))


def _wired(machine: Machine, wiring: Wiring) -> Machine:
    """Return a machine with details from ResourceSlices that other sources lack."""
    numa = machine.numa or (wiring.numa if len(wiring.numa) == machine.gpus else ())
    links = machine.links or (wiring.links if len(wiring.links) == machine.gpus else ())
    return replace(machine, numa=numa, links=links)


def _devices(node: Node) -> dict[str, int]:
    amounts: Amounts = {
        name: quantity(str(text)) or 0.0 for name, text in node.status.allocatable.items()
    }
    counted = {name: int(amount) for name, amount in amounts.items() if is_counted(name)}
    if node.wiring.gpus:
        counted[CLAIMED_GPUS] = node.wiring.gpus
    if "ephemeral-storage" in amounts:
        counted["ephemeral-storage"] = int(amounts["ephemeral-storage"] // _MEBI)
    counted[PODS] = int(amounts.get(PODS, USUAL_PODS))
    return counted


def _tainted(node: SiteNode, told: Node) -> SiteNode:
    return replace(node, taints=_taints(told))


def _taints(node: Node) -> tuple[node_rules.Taint, ...]:
    return tuple(
        node_rules.Taint(taint.key, taint.value, taint.effect)
        for taint in node.spec.taints
        if taint.key == UNSCHEDULABLE or not taint.key.startswith(OF_CONDITIONS)
    )


def _tier_of_key(nodes: Sequence[Node], cluster: Cluster, asked: Sequence[str]) -> dict[str, str]:
    keys = dict.fromkeys(key for node in nodes for key in node.metadata.labels)
    levels: list[Level] = [*PLACES.levels, *levels_of_keys(list(asked))]
    for family in families(keys):
        levels += family.levels
    levels.append(Level("nvlink", NVLINK_KEYS))
    found = {key: level.tier for level in levels for key in level.keys}
    found = {key: tier for key, tier in found.items() if tier in (*cluster.tiers, "nvlink")}
    return {**found, HOST_KEY: "node"}
