"""The graph of a cluster: vertices are devices and switches, edges are links with bandwidth, health and load.

Belongs here: what stands where and what each edge is worth. How a machine looks inside is `machine_graph`; files of
the graph are written by whoever exports it.

Vertices. `kind` is gpu, nic, cpu (a NUMA node), pcie, nvswitch, switch (a domain of the site: leaf, spine...) or
fabric (the root). A domain of a tier called nvlink is the NVSwitch of its GPUs: they are joined to it directly, and
what else is in its nodes to the next domain above it. All have `name`, `tier`, `health`, `load`; devices also `node`,
`machine`, `usable`, `index`, their node's `partition_*`; GPUs `model`, `torus` and `coordinates` ("0,3,1"); NICs `rail`
and `near`; GPUs and NICs that are taken `holder`. An attribute that has no value is left out, for GraphML has no null.

Edges. `bandwidth_GBps` is effective: `capacity_GBps` x `health` x (1 - `load`), one direction. `latency_us` adds up
along a path: what leaving a domain costs more than leaving the one below it is shared by its two up-links, and each
port of a device has half of a step. `told` says where the capacity is from: machine (the class of the link and the
model of the GPU, the rate of the NIC), site (the cluster's links and domains) or assumed (the card that systems with
such GPUs have for each of them; above the node as much as is below). Edges inside a machine have the class as `link`,
those of a torus `torus`, `axis` and `wraps`. `inferred` is true where it is not told that the two are joined, but
follows from NICs they share or numbers they lack.

Rates of up-links, first that is told: the domain's own, its tier's `uplink_GBps`, the tier's rate per GPU times the
GPUs below (the next narrower tier's where it has none). A node's up-links are its NICs, which share what is told of
the node; where the machine names none, its CPUs have an edge each in their place. Where both a NIC and its node have a
health and a load, the worse one counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import isnan, prod
from typing import Any

import networkx as nx
import numpy as np

from gantree.model.cluster import Link, Node
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.tori import TorusIndex, tori_of
from gantree.topology.hardware.constants import NET_US, traits
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.machine_graph import (
    NVLINK_PORT_US,
    InnerDomains,
    MachineGraph,
    draw_inside,
)
from gantree.topology.occupancy.occupancy import Occupancy

Attributes = dict[str, Any]
Vertex = tuple[str, Attributes]
Edge = tuple[str, str, Attributes]
NVLINK_TIER = "nvlink"
TPU_LINK = "ICI"


def build_graph(
    fabric: Fabric, occupancy: Occupancy, conditions: Conditions, inner_domains: InnerDomains
) -> "nx.Graph[str]":
    """Return the graph of a cluster as it is now; inner_domains tells what is inside a machine.

    Raises BadInput where a torus of the cluster contradicts itself.
    """
    return _Builder(fabric, occupancy, conditions, inner_domains).graph()


def vertices_of(fabric: Fabric, inner_domains: InnerDomains) -> int:
    """Return how many vertices `build_graph` makes, without making them."""
    nvswitch_above = NVLINK_TIER in fabric.tiers
    numbers, nodes_of_machine = np.unique(fabric.machine_index_of_node, return_counts=True)
    devices = sum(
        int(nodes)
        * len(draw_inside(fabric.machines[number], inner_domains, nvswitch_above).devices)
        for number, nodes in zip(numbers, nodes_of_machine, strict=True)
    )
    return devices + sum(fabric.domains(tier) for tier in range(fabric.node_tier))


@dataclass(frozen=True, slots=True)
class _Rate:
    """What an edge can carry, before health and load."""

    capacity_GBps: float
    told: str


def _edge(
    kind: str,
    rate: _Rate,
    latency_us: float,
    health: float = 1.0,
    load: float = 0.0,
    inferred: bool = False,
) -> Attributes:
    """Return the attributes of an edge."""
    return {
        "kind": kind,
        "bandwidth_GBps": rate.capacity_GBps * health * (1 - load),
        "capacity_GBps": float(rate.capacity_GBps),
        "latency_us": float(latency_us),
        "health": health,
        "load": load,
        "told": rate.told,
        "inferred": inferred,
    }


class _Builder:
    """The graph while it grows, and what is looked up for it."""

    def __init__(
        self,
        fabric: Fabric,
        occupancy: Occupancy,
        conditions: Conditions,
        inner_domains: InnerDomains,
    ) -> None:
        self.fabric = fabric
        self.cluster = fabric.cluster
        self.occupancy = occupancy
        self.conditions = conditions
        self.inner_domains = inner_domains
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.vertices_of_node: list[list[str]] = []
        self.holder_of_gpu, self.holder_of_nic = _holders(occupancy)
        self.tori = tori_of(fabric)
        self.torus_of_node = {node: torus for torus in self.tori for node in torus.position_of_node}
        self.told_GBps_of_node = self._told_uplinks()

    def graph(self) -> "nx.Graph[str]":
        for tier in range(self.fabric.node_tier):
            for domain in range(self.fabric.domains(tier)):
                self._add_domain(tier, domain)
        insides: dict[tuple[int, bool], MachineGraph] = {}
        for index in range(len(self.fabric.nodes)):
            key = int(self.fabric.machine_index_of_node[index]), self.nvswitch_of(index) is not None
            if key not in insides:
                insides[key] = draw_inside(
                    self.fabric.machines[key[0]], self.inner_domains, nvswitch_above=key[1]
                )
            drawing = _NodeDrawing(self, index, insides[key])
            self.vertices_of_node.append(drawing.vertices)
            drawing.add()
        graph: nx.Graph[str] = nx.Graph(name=self.cluster.name, tiers=",".join(self.fabric.tiers))
        graph.add_nodes_from(self.vertices)
        graph.add_edges_from(self.edges)
        for torus in self.tori:
            graph.add_edges_from(
                edge for edge in self._torus_edges(torus) if not graph.has_edge(*edge[:2])
            )
        return graph

    # ----- domains of the site

    def vertex_of_domain(self, tier: int, domain: int) -> str:
        """Return the id of a domain above the node."""
        if tier == 0:
            return "fabric"
        return f"switch:{self.fabric.tiers[tier]}/{self.fabric.names_of_domain[tier][domain]}"

    def _add_domain(self, tier: int, domain: int) -> None:
        tier_name, name = self.fabric.tiers[tier], self.fabric.names_of_domain[tier][domain]
        kind = "nvswitch" if tier_name == NVLINK_TIER else "switch" if tier else "fabric"
        health, load = self.condition(tier, domain)
        told = {"kind": kind, "name": name or self.cluster.name, "tier": tier_name}
        vertex = self.vertex_of_domain(tier, domain)
        self.vertices.append((vertex, told | {"health": health, "load": load}))
        if kind != "switch":
            return
        first, parent = int(self.fabric.first_node_of_domain[tier][domain]), self.parent_tier(tier)
        above = self.vertex_of_domain(parent, int(self.fabric.domain_of_node[parent][first]))
        rate, latency_us = self._uplink(tier, domain), self.port_latency_us(parent, tier)
        self.edges.append((vertex, above, _edge("network", rate, latency_us, health, load)))

    def condition(self, tier: int, domain: int) -> tuple[float, float]:
        """Return health and load of a domain."""
        health = self.conditions.health_of_domain[tier][domain]
        return float(health), float(self.conditions.load_of_domain[tier][domain])

    def _uplink(self, tier: int, domain: int) -> _Rate:
        told = float(self.fabric.uplink_GBps_of_domain[tier][domain])
        if not isnan(told):
            return _Rate(told, "site")
        first = self.fabric.first_node_of_domain[tier]
        nodes = range(int(first[domain]), int(first[domain + 1]))
        link = self.link_of_tier(self.parent_tier(tier) + 1)
        if link is None:
            return _Rate(sum(self._node_GBps(node) for node in nodes), "assumed")
        gpus = int(self.fabric.gpus_of_node[nodes.start : nodes.stop].sum())
        return _Rate(link.bandwidth_GBps * max(1, gpus), "site")

    def _node_GBps(self, node: int) -> float:
        """Return what a node sends out as far as is known, else what systems with such GPUs have."""
        told = float(self.fabric.uplink_GBps_of_domain[self.fabric.node_tier][node])
        machine = self.fabric.machine_of_node(node)
        return max(1, machine.gpus) * traits(machine.gpu).nic_GBps if isnan(told) else told

    def _told_uplinks(self) -> dict[int, float]:
        """Return what the site, not the machine, told of the up-links of nodes."""
        link = self.cluster.links.get("node")
        whole = link.uplink_GBps if link else None
        told = {} if whole is None else dict.fromkeys(range(len(self.fabric.nodes)), whole)
        for facts in self.cluster.domains:
            if facts.tier == "node" and facts.uplink_GBps is not None:
                told[self.fabric.index_of_node[facts.name]] = facts.uplink_GBps
        return told

    def parent_tier(self, tier: int) -> int:
        """Return the next wider tier whose domains are switches of the network."""
        wider = tier - 1
        while self.fabric.tiers[wider] == NVLINK_TIER:
            wider -= 1
        return wider

    def link_of_tier(self, tier: int) -> Link | None:
        """Return what a GPU has when it leaves a domain of this tier, a narrower tier's if need be."""
        return next(
            (self.cluster.links[t] for t in self.fabric.tiers[tier:] if t in self.cluster.links),
            None,
        )

    def port_latency_us(self, parent: int, tier: int) -> float:
        """Return half of what it costs more to leave a domain below `parent` than to leave one below `tier`."""
        outer = self.latency_us(parent + 1)
        inner = self.latency_us(tier + 1) if tier < self.fabric.node_tier else 0.0
        return max(0.0, outer - inner) / 2

    def latency_us(self, tier: int) -> float:
        """Return the latency of leaving a domain of a tier: the site's, else NCCL's."""
        link = self.link_of_tier(tier)
        return NET_US if link is None else link.latency_us

    def nvswitch_of(self, node: int) -> str | None:
        """Return the vertex of the NVLink domain above a node."""
        if NVLINK_TIER not in self.fabric.tiers:
            return None
        tier = self.fabric.tiers.index(NVLINK_TIER)
        return self.vertex_of_domain(tier, int(self.fabric.domain_of_node[tier][node]))

    def _torus_edges(self, index: TorusIndex) -> Iterator[Edge]:
        """Yield the edges from each GPU of a torus to the next one along each axis, over the seam where it closes."""
        torus = index.torus
        for point in product(*map(range, torus.dims)):
            for axis, side in enumerate(torus.dims):
                ahead = point[axis] + 1
                wraps = ahead == side and torus.wrap[axis] and side > 2
                beside = (*point[:axis], ahead % side, *point[axis + 1 :])
                a, b = self._vertex_at(index, point), self._vertex_at(index, beside)
                if a != b and (ahead < side or wraps):
                    rate, latency_us = (
                        self._torus_rate(index, point),
                        self.latency_us(self.fabric.node_tier),
                    )
                    told = _edge("torus", rate, latency_us)
                    yield a, b, told | {"torus": torus.name, "axis": axis, "wraps": wraps}

    def _vertex_at(self, index: TorusIndex, point: tuple[int, ...]) -> str:
        """Return what stands at a point: a GPU, or the first CPU of a node that is one point with all that it holds."""
        node, gpu = index.gpu_at(point)
        name, gpus = self.fabric.nodes[node].name, int(self.fabric.gpus_of_node[node])
        if gpus == prod(index.torus.host):
            return f"gpu:{name}/{gpu}"
        return next(v for v in self.vertices_of_node[node] if v.startswith("cpu:"))

    def _torus_rate(self, index: TorusIndex, point: tuple[int, ...]) -> _Rate:
        machine = self.fabric.machine_of_node(index.gpu_at(point)[0])
        model, link = gpu_model(machine.gpu), self.link_of_tier(self.fabric.node_tier)
        if model is not None and model.link == TPU_LINK and model.link_GBps is not None:
            return _Rate(model.link_GBps, "machine")
        if link is not None:
            return _Rate(link.bandwidth_GBps, "site")
        return _Rate(traits(machine.gpu).nic_GBps, "assumed")


class _NodeDrawing:
    """One node: the inside of its machine with its own names, holders and health, and its way into the fabric."""

    def __init__(self, builder: _Builder, index: int, inside: MachineGraph) -> None:
        self.builder, self.index, self.inside = builder, index, inside
        self.node: Node = builder.fabric.nodes[index]
        self.machine = builder.fabric.machine_of_node(index)
        self.health, self.load = builder.condition(builder.fabric.node_tier, index)
        self.vertices = [f"{d.kind}:{self.node.name}/{d.name}" for d in inside.devices]

    def add(self) -> None:
        shared = self._shared()
        for vertex, device in zip(self.vertices, self.inside.devices, strict=True):
            own = self._own(device.kind, device.index)
            told = {"kind": device.kind, "name": f"{self.node.name}/{device.kind}{device.name}"}
            self.builder.vertices.append((vertex, told | shared | {"index": device.index} | own))
        for wire in self.inside.wires:
            rate = _Rate(wire.bandwidth_GBps, "machine")
            told = _edge(wire.kind, rate, wire.latency_us, inferred=wire.inferred)
            ends = self.vertices[wire.a], self.vertices[wire.b]
            self.builder.edges.append((*ends, told | {"link": wire.link}))
        self._join_nvswitch()
        self._join_network()

    def _shared(self) -> Attributes:
        """Attributes of all devices of the node."""
        usable = self.builder.occupancy.usable(self.node.name) and self.health > 0
        partitions = {f"partition_{name}": domain for name, domain in self.node.partitions}
        return {
            "tier": "node",
            "node": self.node.name,
            "machine": self.machine.name,
            "usable": usable,
            "health": self.health,
            "load": self.load,
        } | partitions

    def _own(self, kind: str, index: int) -> Attributes:
        if kind == "gpu":
            return self._own_of_gpu(index)
        if kind == "nic":
            return self._own_of_nic(index)
        return {"tier": {"cpu": "socket", "nvswitch": NVLINK_TIER}.get(kind, kind)}

    def _own_of_gpu(self, gpu: int) -> Attributes:
        own: Attributes = {"tier": "gpu"}
        if self.machine.gpu:
            own["model"] = self.machine.gpu
        holder = self.builder.holder_of_gpu.get((self.node.name, gpu))
        if holder is not None:
            own["holder"] = holder
        torus = self.builder.torus_of_node.get(self.index)
        if torus is not None and (prod(torus.torus.host) == 1 or gpu < prod(torus.torus.host)):
            own["torus"] = torus.torus.name
            own["coordinates"] = ",".join(str(at) for at in torus.gpu_point(self.index, gpu))
        return own

    def _own_of_nic(self, index: int) -> Attributes:
        nic = self.machine.nics[index]
        health, load = self._condition_of_nic(index)
        usable = self.builder.occupancy.usable(self.node.name)
        own: Attributes = {
            "tier": "nic",
            "name": f"{self.node.name}/{nic.name}",
            "health": health,
            "load": load,
            "usable": usable and health > 0,
        }
        if nic.rail is not None:
            own["rail"] = nic.rail
        if nic.near:
            own["near"] = ",".join(str(gpu) for gpu in nic.near)
        holder = self.builder.holder_of_nic.get((self.node.name, nic.name))
        return own if holder is None else own | {"holder": holder}

    def _condition_of_nic(self, nic: int) -> tuple[float, float]:
        """Return health and load of a NIC, the worse of its own and its node's."""
        conditions = self.builder.conditions
        health = min(float(conditions.health_of_nic[self.index, nic]), self.health)
        return health, max(float(conditions.load_of_nic[self.index, nic]), self.load)

    def _join_nvswitch(self) -> None:
        switch = self.builder.nvswitch_of(self.index)
        if switch is None:
            return
        for gpu, bandwidth_GBps in enumerate(self.inside.nvlink_GBps_of_gpu):
            if bandwidth_GBps:
                told = _edge("nvlink", _Rate(bandwidth_GBps, "machine"), NVLINK_PORT_US)
                self.builder.edges.append((self.vertices[gpu], switch, told))

    def _join_network(self) -> None:
        """Join the NICs, or the CPUs where the machine names no NIC, to the domain that the node is in."""
        fabric = self.builder.fabric
        parent = self.builder.parent_tier(fabric.node_tier)
        number = int(fabric.domain_of_node[parent][self.index])
        domain = self.builder.vertex_of_domain(parent, number)
        latency_us = self.builder.port_latency_us(parent, fabric.node_tier)
        for position, told in self._ports(parent, latency_us):
            self.builder.edges.append((self.vertices[position], domain, told))

    def _ports(self, parent: int, latency_us: float) -> Iterator[tuple[int, Attributes]]:
        """Yield the devices that face the network, by position, with their edges."""
        first = self.machine.gpus
        for number in range(len(self.machine.nics)):
            rate, condition = self._rate_of_nic(number, parent), self._condition_of_nic(number)
            yield first + number, _edge("network", rate, latency_us, *condition)
        if not self.machine.nics:
            cpus = len(self.inside.gpus_of_cpu)
            for number, gpus in enumerate(self.inside.gpus_of_cpu):
                rate = self._share(parent, gpus, cpus)
                told = _edge("network", rate, latency_us, self.health, self.load, inferred=True)
                yield first + number, told

    def _rate_of_nic(self, number: int, parent: int) -> _Rate:
        """Return a NIC's own rate, at most its share of what the site told of the node; without one, that share."""
        nic = self.machine.nics[number]
        sharing = sum(bool(nic.near) for nic in self.machine.nics) or len(self.machine.nics)
        share = self._share(parent, self.machine.gpus / sharing, sharing)
        if nic.bandwidth_GBps is None:
            return share
        if (
            self.index in self.builder.told_GBps_of_node
            and share.capacity_GBps < nic.bandwidth_GBps
        ):
            return share
        return _Rate(nic.bandwidth_GBps, "machine")

    def _share(self, parent: int, gpus: float, sharing: int) -> _Rate:
        """Return one of so many equal parts of the node's up-links, of which this one serves so many GPUs."""
        told = self.builder.told_GBps_of_node.get(self.index)
        if told is not None:
            return _Rate(told / sharing, "site")
        link = self.builder.link_of_tier(parent + 1)
        if link is not None:
            return _Rate(link.bandwidth_GBps * (gpus or 1), "site")
        return _Rate(traits(self.machine.gpu).nic_GBps * (gpus or 1), "assumed")


def _holders(
    occupancy: Occupancy,
) -> tuple[dict[tuple[str, int], str], dict[tuple[str, str], str]]:
    """Return who holds each GPU and each NIC that is taken, by node and index or name."""
    gpus, nics = {}, {}
    for owner, members in occupancy.owners.items():
        for member in members:
            gpus.update({(member.node, gpu): owner for gpu in member.gpus})
            nics.update({(member.node, nic): owner for nic in member.nics})
    return gpus, nics
