"""Figures of a fabric per node and domain that `paths` looks up. Built once per fabric.

An *island* is a set of GPUs that need no NIC to reach each other: a domain of the tier "nvlink" where the site has
it above the node (NVL72), else a node. Everything wider is crossed over NICs.

Nodes that are alike to traffic (machine, what is left of their NICs and of their GPUs' links) have one *kind*; prices
are kept by kind, so that a thousand equal nodes are looked at once. What is left of a link is health x (1 - load),
never less than LEAST_RESIDUAL (`conditions` keeps them).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from gantree.model.cluster import Link
from gantree.topology.fabric.calibration import Calibration
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric, FloatArray, IntArray
from gantree.topology.hardware.constants import LEAST_RESIDUAL, NET_US, Traits, traits
from gantree.topology.hardware.intra_node import Host, IntraNodeRates, WornGpu
from gantree.topology.hardware.link_classes import PATH_CLASSES, SELF
from gantree.topology.hardware.masks import gpus_of
from gantree.topology.traffic.nic_egress import NicEgress

NVLINK_TIER = "nvlink"
NIC = "nic"
LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Tier:
    """Figures of one tier outside the island. Arrays are by domain.

    GPU_GBps is what a GPU has for traffic that leaves a domain (nan where the site does not say), latency_us one
    step over it, uplink_GBps the capacity of a domain's up-links (inf where unknown), residual what is left of both.
    plain is whether no domain has a known capacity or is anything but whole and idle.
    """

    GPU_GBps: float
    latency_us: float
    uplink_GBps: FloatArray
    residual: FloatArray
    kind_of_domain: tuple[int, ...]
    plain: bool


@dataclass(slots=True, eq=False)
class TrafficIndex:
    """A fabric as traffic sees it. Build it with `TrafficIndex.of`; what it keeps beyond that are prices by kind.

    tiers[t] belongs to fabric.tiers[t]; tiers[0] (the whole fabric) is never left and only fills its place.
    domain_of_node[t] beside it; island_of_node is the domain of the island's tier.
    """

    fabric: Fabric
    island_tier: int
    tiers: tuple[Tier, ...]
    kind_of_node: IntArray
    hosts: tuple[Host, ...]
    egress: tuple[NicEgress, ...]
    residual_of_node: FloatArray
    words: list[str] = field(default_factory=lambda: [LATENCY, NIC])
    _inside: dict[tuple[int, int], IntraNodeRates] = field(default_factory=dict)
    _out: dict[tuple[int, int, int], float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fabric: Fabric,
        calibration: Calibration | None = None,
        conditions: Conditions | None = None,
    ) -> "TrafficIndex":
        """Gather the figures; measured links take the place of the site's and of the constants.

        conditions are what is worn or busy now; None takes what the cluster file says.
        """
        measured = dict(calibration.links) if calibration else {}
        links = {**fabric.cluster.links, **measured}
        now = Conditions(fabric) if conditions is None else conditions
        tiers = tuple(_tier(fabric, tier, links, now) for tier in range(len(fabric.tiers)))
        kinds, kind_of_node = _kinds(fabric, now)
        least_nic = max(
            (links[name].bandwidth_GBps for name in fabric.tiers if name in links), default=0.0
        )
        machines = [fabric.machines[kind.machine] for kind in kinds]
        return cls(
            fabric=fabric,
            island_tier=fabric.tiers.index(NVLINK_TIER)
            if NVLINK_TIER in fabric.tiers
            else fabric.node_tier,
            tiers=tiers,
            kind_of_node=kind_of_node,
            hosts=tuple(
                Host.of(machine, measured, in_domain=NVLINK_TIER in fabric.tiers, worn=kind.gpus)
                for machine, kind in zip(machines, kinds, strict=True)
            ),
            egress=tuple(
                NicEgress.of(machine, dict(kind.nics), least_nic, kind.pcie)
                for machine, kind in zip(machines, kinds, strict=True)
            ),
            residual_of_node=tiers[fabric.node_tier].residual,
        )

    @property
    def island_of_node(self) -> IntArray:
        """The island of each node."""
        return self.fabric.domain_of_node[self.island_tier]

    @property
    def islands_span_nodes(self) -> bool:
        """Whether NVLink reaches beyond the node."""
        return self.island_tier < self.fabric.node_tier

    @property
    def links(self) -> frozenset[str]:
        """The tiers and link classes that measured links may be of."""
        classes = {link for host in self.hosts for row in host.machine.links for link in row}
        ports = {host.port_link for host in self.hosts}
        return frozenset({*self.fabric.tiers[1:], *classes, *ports, *PATH_CLASSES} - {SELF})

    def traits_of_kind(self, kind: int) -> Traits:
        """What is known of the GPUs of nodes of a kind."""
        return traits(self.hosts[kind].machine.gpu)

    def inside(self, kind: int, mask: int) -> IntraNodeRates:
        """What the GPUs of a mask are to each other."""
        found = self._inside.get((kind, mask))
        if found is None:
            found = self._inside[kind, mask] = self.hosts[kind].inside(gpus_of(mask))
        return found

    def out_GBps(self, kind: int, mask: int, busy: int) -> float:
        """What the GPUs of a mask send out of a node while those of busy do too; the node's health is not in it."""
        found = self._out.get((kind, mask, busy))
        if found is None:
            found = self.egress[kind].out_GBps(mask, busy)
            self._out[kind, mask, busy] = found
        return found

    def code(self, word: str) -> int:
        """The number that stands for a word in arrays of limits."""
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)


def _tier(fabric: Fabric, tier: int, links: Mapping[str, Link], now: Conditions) -> Tier:
    told = links.get(fabric.tiers[tier])
    uplink = _uplinks(fabric, tier)
    left = np.maximum(LEAST_RESIDUAL, now.residual_of_domain(tier))
    kinds: dict[tuple[float, float], int] = {}
    return Tier(
        GPU_GBps=told.bandwidth_GBps if told else np.nan,
        latency_us=_latency_us(fabric, tier, links),
        uplink_GBps=uplink,
        residual=left,
        kind_of_domain=tuple(
            kinds.setdefault(pair, len(kinds))
            for pair in zip(uplink.tolist(), left.tolist(), strict=True)
        ),
        plain=bool(np.isinf(uplink).all() and (left == 1).all()),
    )


def _uplinks(fabric: Fabric, tier: int) -> FloatArray:
    """Capacities that the site tells; inf where it does not. Of nodes not those of their NICs: `egress` has them."""
    if tier < fabric.node_tier:
        return np.nan_to_num(fabric.uplink_GBps_of_domain[tier], nan=inf, posinf=inf)
    link = fabric.cluster.links.get(fabric.tiers[tier])
    uplinks = np.full(fabric.domains(tier), (link and link.uplink_GBps) or inf)
    for facts in fabric.cluster.domains:
        if facts.tier == fabric.tiers[tier] and facts.uplink_GBps is not None:
            uplinks[fabric.index_of_node[facts.name]] = facts.uplink_GBps
    return uplinks


def _latency_us(fabric: Fabric, tier: int, links: Mapping[str, Link]) -> float:
    """Of the tier, else of the next narrower one that has any, else NCCL's."""
    for name in fabric.tiers[tier:]:
        if name in links:
            return links[name].latency_us
    return NET_US


class Kind(NamedTuple):
    """What nodes that are alike to traffic share: machine by number, what is left of NICs by name, worn GPUs."""

    machine: int
    nics: tuple[tuple[str, float], ...] = ()
    gpus: tuple[WornGpu, ...] = ()

    @property
    def pcie(self) -> dict[int, float]:
        """The share of its rate that the PCIe port of each worn GPU carries."""
        return {worn.gpu: worn.pcie for worn in self.gpus}


def _kinds(fabric: Fabric, now: Conditions) -> tuple[list[Kind], IntArray]:
    """Each kind, and the kind of each node."""
    left = np.maximum(LEAST_RESIDUAL, now.health_of_nic * (1 - now.load_of_nic))
    kinds: dict[Kind, int] = {Kind(number): number for number in range(len(fabric.machines))}
    kind_of_node = fabric.machine_index_of_node.copy()
    gpus = _worn_gpus(fabric)
    for node in sorted({*np.flatnonzero((left != 1).any(axis=1)).tolist(), *gpus}):
        machine = fabric.machine_of_node(node)
        worn = zip((nic.name for nic in machine.nics), left[node].tolist(), strict=False)
        nics = tuple((name, part) for name, part in worn if part != 1)
        key = Kind(int(kind_of_node[node]), nics, gpus.get(node, ()))
        kind_of_node[node] = kinds.setdefault(key, len(kinds))
    return list(kinds), kind_of_node


def _worn_gpus(fabric: Fabric) -> dict[int, tuple[WornGpu, ...]]:
    """The GPUs of each node of which links carry less, by number."""
    found: dict[int, list[WornGpu]] = {}
    for facts in fabric.cluster.gpus:
        node = fabric.index_of_node.get(facts.node)
        if node is not None:
            pcie, nvlink = max(LEAST_RESIDUAL, facts.pcie), max(LEAST_RESIDUAL, facts.nvlink)
            found.setdefault(node, []).append(WornGpu(facts.gpu, pcie, nvlink))
    return {node: tuple(sorted(gpus)) for node, gpus in found.items()}
