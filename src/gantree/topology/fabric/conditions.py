"""Health and load of every domain's up-links and of every NIC.

Numbers that change, as arrays beside the fabric, like `occupancy`; but nobody owns them: they come from the cluster
file at first, from telemetry later. Health says what is broken (1 whole, 0 broken), load what is busy (0 idle, 1
full). They are two numbers, never one: a gang must not flee its own traffic, so whoever prices a place may leave out
the load that the gang itself makes, but never the health. `residual` joins the two for `cost`: health x (1 - load) is
the share of a capacity that new traffic finds.

A node of health 0 takes no work: `Occupancy` marks it unusable. A NIC of health 0 is handed to nobody: `Occupancy`
leaves it out of what is free. Any other domain of health 0 can still be used inside.
"""

from collections.abc import Iterable
from typing import Self

import numpy as np

from gantree.model.cluster import LinkId
from gantree.model.errors import BadInput
from gantree.topology.fabric.fabric import BoolArray, Fabric, FloatArray
from gantree.topology.hardware.masks import mask_of


class Conditions:
    """Health and load of a fabric. Read the arrays, never write them.

    health_of_domain[tier][domain] and load_of_domain[tier][domain] are of the domain's up-links (of a node: of the
    node); health_of_nic[node, nic] and load_of_nic[node, nic] of the NICs in the order of the node's machine, with
    1 and 0 where a machine has fewer. version grows with every change.
    """

    def __init__(self, fabric: Fabric) -> None:
        """What the cluster file says; all else is whole and idle. BadInput for facts of what is not there."""
        self.fabric = fabric
        nics = max((len(machine.nics) for machine in fabric.machines), default=0)
        shape = (len(fabric.nodes), nics)
        tiers = range(fabric.node_tier + 1)
        self.health_of_domain = [np.ones(fabric.domains(tier)) for tier in tiers]
        self.load_of_domain = [np.zeros(fabric.domains(tier)) for tier in tiers]
        self.health_of_nic: FloatArray = np.ones(shape)
        self.load_of_nic: FloatArray = np.zeros(shape)
        self._number_of_nic = tuple(
            {nic.name: number for number, nic in enumerate(machine.nics)}
            for machine in fabric.machines
        )
        self.version = 0
        for domain in fabric.cluster.domains:
            self.set_domain(*fabric.find(domain.tier, domain.name), domain.health, domain.load)
        for nic in fabric.cluster.nics:
            self.set_nic(nic.node, nic.nic, nic.health, nic.load)

    def residual(self, tier: int, domain: int) -> float:
        """Share of a domain's up-links that new traffic finds: health x (1 - load)."""
        health, load = self.health_of_domain[tier][domain], self.load_of_domain[tier][domain]
        return float(health * (1 - load))

    def residual_of_domain(self, tier: int) -> FloatArray:
        """As `residual`, of all domains of a tier."""
        residual: FloatArray = self.health_of_domain[tier] * (1 - self.load_of_domain[tier])
        return residual

    def residual_of_nic(self, node: str, nic: str) -> float:
        """Share of a NIC's rate that new traffic finds."""
        place = self._place_of_nic(node, nic)
        return float(self.health_of_nic[place] * (1 - self.load_of_nic[place]))

    def set_domain(
        self, tier: int, domain: int, health: float | None = None, load: float | None = None
    ) -> None:
        """Say anew how a domain's up-links are; None keeps a number. BadInput outside 0 to 1."""
        name = f"{self.fabric.tiers[tier]} {self.fabric.names_of_domain[tier][domain]}"
        _check(name, health, load)
        if health is not None:
            self.health_of_domain[tier][domain] = health
        if load is not None:
            self.load_of_domain[tier][domain] = load
        self.version += 1

    def set_nic(
        self, node: str, nic: str, health: float | None = None, load: float | None = None
    ) -> None:
        """Say anew how a NIC is; None keeps a number. BadInput outside 0 to 1, and for a NIC that is not there."""
        place = self._place_of_nic(node, nic)
        _check(f"NIC {nic} of {node}", health, load)
        if health is not None:
            self.health_of_nic[place] = health
        if load is not None:
            self.load_of_nic[place] = load
        self.version += 1

    def copy(self) -> Self:
        """The same state, to be changed on its own."""
        twin = self.__class__.__new__(self.__class__)
        twin.fabric = self.fabric
        twin.health_of_domain = [health.copy() for health in self.health_of_domain]
        twin.load_of_domain = [load.copy() for load in self.load_of_domain]
        twin.health_of_nic = self.health_of_nic.copy()
        twin.load_of_nic = self.load_of_nic.copy()
        twin._number_of_nic = self._number_of_nic
        twin.version = self.version
        return twin

    def _place_of_nic(self, node: str, nic: str) -> tuple[int, int]:
        _, index = self.fabric.find(self.fabric.tiers[-1], node)
        numbers = self._number_of_nic[int(self.fabric.machine_index_of_node[index])]
        if nic not in numbers:
            raise _no_such_nic(node, nic, numbers)
        return index, numbers[nic]


def has_link(fabric: Fabric, link: LinkId) -> bool:
    """Whether a fabric has a link."""
    of_node = link.nic or link.gpu
    tier, name = (fabric.tiers[-1], of_node[0]) if of_node else (link.tier, link.path)
    try:
        _, domain = fabric.find(tier, name)
    except BadInput:
        return False
    if link.gpu is not None:
        return link.gpu[1] < fabric.machine_of_node(domain).gpus
    if link.nic is None:
        return link.tier in fabric.cluster.tiers
    return any(nic.name == link.nic[1] for nic in fabric.machine_of_node(domain).nics)


def links_of_domain(fabric: Fabric, tier: int, domain: int) -> LinkId:
    """The up-links of a domain by number, as reports name them: those of a node by the node's name."""
    if tier == fabric.node_tier:
        return LinkId(fabric.tiers[tier], fabric.nodes[domain].name)
    return LinkId(fabric.tiers[tier], fabric.names_of_domain[tier][domain])


def sound_nodes(fabric: Fabric) -> BoolArray:
    """Mask of the nodes that may take work: all but those whose health the cluster file gives as 0."""
    sound = np.ones(len(fabric.nodes), dtype=np.bool_)
    for facts in fabric.cluster.domains:
        if facts.tier == fabric.tiers[-1] and facts.health == 0:
            sound[fabric.index_of_node[facts.name]] = False
    return sound


def worn_nodes(fabric: Fabric) -> frozenset[str]:
    """The nodes of which a link, a NIC or a link of a GPU carries less than its rate."""
    node_tier = fabric.tiers[-1]
    of_links = (
        each.name for each in fabric.cluster.domains if each.tier == node_tier and each.health < 1
    )
    of_nics = (each.node for each in fabric.cluster.nics if each.health < 1)
    return frozenset((*of_links, *of_nics, *(each.node for each in fabric.cluster.gpus)))


def worn_gpus(fabric: Fabric, node: int) -> int:
    """Mask of the GPUs of a node of which PCIe or NVLinks carry less than their rate."""
    if not fabric.cluster.gpus:
        return 0
    name = fabric.nodes[node].name
    return mask_of(facts.gpu for facts in fabric.cluster.gpus if facts.node == name)


def broken_nics(fabric: Fabric) -> dict[int, int]:
    """Node -> mask of its NICs whose health the cluster file gives as 0; only nodes that have such.

    Raises BadInput for a NIC that is not there.
    """
    masks: dict[int, int] = {}
    for facts in fabric.cluster.nics:
        if facts.health == 0:
            _, node = fabric.find(fabric.tiers[-1], facts.node)
            names = [nic.name for nic in fabric.machine_of_node(node).nics]
            if facts.nic not in names:
                raise _no_such_nic(facts.node, facts.nic, names)
            masks[node] = masks.get(node, 0) | 1 << names.index(facts.nic)
    return masks


def _no_such_nic(node: str, nic: str, names: Iterable[str]) -> BadInput:
    return BadInput(f"node {node} has no NIC {nic!r}, only {', '.join(names) or 'none'}")


def _check(what: str, health: float | None, load: float | None) -> None:
    for word, value in (("health", health), ("load", load)):
        if value is not None and not 0 <= value <= 1:
            raise BadInput(f"{what}: {word} {value:g} is not between 0 and 1")
