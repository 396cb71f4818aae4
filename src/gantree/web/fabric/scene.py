"""The data of a drawn fabric, before layout and colour.

Holders are numbered in topology order, so that neighbours in the drawing differ; a code of letters (a, b ... z, aa)
stands for each wherever colour alone would have to tell them apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase

import numpy as np

from gantree.model.cluster import GpuFacts
from gantree.text.words import plural
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.partitions import partitions_of
from gantree.topology.fabric.tori import tori_of
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.web.fabric.style import look_of

FREE = -1


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds something: its name, its code, the GPUs it holds and on how many nodes."""

    name: str
    code: str
    gpus: int
    nodes: int

    @property
    def look(self) -> int:
        """That of its job, be it held for the job, reserved for it, or taken by it."""
        return look_of(self.name.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class NicView:
    """A NIC that is not whole (health below 1) or not idle (load above 0)."""

    name: str
    health: float
    load: float


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. holder_of_gpu[gpu] is a number of a holder or FREE; holders are all that hold anything on it.

    nics are those that are not whole or not idle; words are lines that tell all of it.
    """

    name: str
    machine: str
    holder_of_gpu: tuple[int, ...]
    holders: tuple[int, ...]
    usable: bool
    health: float
    load: float
    nics: tuple[NicView, ...]
    words: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether the node and all of its NICs have full health."""
        return self.health == 1 and all(nic.health == 1 for nic in self.nics)

    @property
    def free_gpus(self) -> int:
        """GPUs that are free and may be used."""
        return self.holder_of_gpu.count(FREE) if self.usable else 0


@dataclass(frozen=True, slots=True)
class DomainView:
    """A domain above the node with what is in it: domains of the next tier, or nodes."""

    tier: str
    name: str
    health: float
    load: float
    gpus: int
    free_gpus: int
    inside: "tuple[DomainView, ...] | tuple[NodeView, ...]"


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A domain of another division of the nodes, with its nodes and GPUs."""

    partition: str
    domain: str
    nodes: int
    gpus: int
    free_gpus: int


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole cluster. root is the fabric; taken_gpus are held by somebody, idle_gpus by nobody on nodes out of use."""

    name: str
    root: DomainView
    holders: tuple[Holder, ...]
    nodes: tuple[NodeView, ...]
    partitions: tuple[PartitionView, ...]
    taken_gpus: int
    idle_gpus: int


def scene_of(fabric: Fabric, occupancy: Occupancy, conditions: Conditions) -> Scene:
    """Return what is to be drawn of a cluster."""
    nodes = _nodes(fabric, occupancy, conditions)
    taken = sum(holder != FREE for node in nodes for holder in node.holder_of_gpu)
    root = _domain(fabric, conditions, nodes, 0, 0)
    return Scene(
        name=fabric.cluster.name,
        root=root,
        holders=_holders(occupancy, _order_of_holders(fabric, occupancy)),
        nodes=nodes,
        partitions=_partitions(fabric, nodes),
        taken_gpus=taken,
        idle_gpus=root.gpus - taken - root.free_gpus,
    )


def code_of(number: int) -> str:
    """Return letters for a number: 0 is a, 25 is z, 26 is aa."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, len(ascii_lowercase))
        letters = ascii_lowercase[letter] + letters
    return letters


def percent(part: float) -> str:
    """Return a part of 1 for people; what is not quite all or nothing is never rounded to it."""
    shown = min(99, max(1, round(part * 100))) if 0 < part < 1 else round(part * 100)
    return f"{shown} %"


def nics_to_tell(conditions: Conditions) -> dict[int, tuple[NicView, ...]]:
    """Return, by node index, the NICs that are not whole or not idle; nodes without such have no entry."""
    fabric = conditions.fabric
    of_node: dict[int, list[NicView]] = {}
    for node, nic in np.argwhere((conditions.health_of_nic < 1) | (conditions.load_of_nic > 0)):
        health, load = conditions.health_of_nic[node, nic], conditions.load_of_nic[node, nic]
        name = fabric.machine_of_node(int(node)).nics[nic].name
        of_node.setdefault(int(node), []).append(NicView(name, float(health), float(load)))
    return {node: tuple(nics) for node, nics in of_node.items()}


def gpu_link_notes(fabric: Fabric) -> dict[int, tuple[str, ...]]:
    """Return, by node index, short notes on GPUs of which links carry less: "1 GPU PCIe 50 %"."""
    of_node: dict[int, list[GpuFacts]] = {}
    for facts in fabric.cluster.gpus:
        if facts.node in fabric.index_of_node:
            of_node.setdefault(fabric.index_of_node[facts.node], []).append(facts)
    return {
        node: (
            *_worn_gpus("PCIe", [each.pcie for each in facts]),
            *_worn_gpus("NVLink", [each.nvlink for each in facts]),
        )
        for node, facts in of_node.items()
    }


def _worn_gpus(link: str, shares: Sequence[float]) -> list[str]:
    worn = [share for share in shares if share < 1]
    return [f"{plural(len(worn), 'GPU')} {link} {_percents(worn)}"] if worn else []


def nic_notes(nics: Sequence[NicView]) -> list[str]:
    """Return short notes on the NICs of a node, those of one kind counted together: "1 NIC out of use"."""
    broken = [nic for nic in nics if nic.health == 0]
    worn = [nic.health for nic in nics if 0 < nic.health < 1]
    busy = [nic.load for nic in nics if nic.health > 0 and nic.load > 0]
    return [
        *([f"{_nics(len(broken))} out of use"] if broken else []),
        *([f"{_nics(len(worn))} health {_percents(worn)}"] if worn else []),
        *([f"{_nics(len(busy))} load {_percents(busy)}"] if busy else []),
    ]


def _nics(count: int) -> str:
    return f"{count} NIC{'s' * (count != 1)}"


def _percents(parts: Sequence[float]) -> str:
    least, most = percent(min(parts)), percent(max(parts))
    return least if least == most else f"{least} to {most}"


def _nic_in_words(nic: NicView) -> str:
    parts = [f"health {percent(nic.health)}" if nic.health < 1 else ""]
    parts += [f"load {percent(nic.load)}" if nic.load > 0 else ""]
    return f"NIC {nic.name} " + (", ".join(filter(None, parts)) if nic.health > 0 else "out of use")


def _order_of_holders(fabric: Fabric, occupancy: Occupancy) -> list[str]:
    def first_node(owner: str) -> tuple[int, str]:
        members = occupancy.owners[owner]
        return min((fabric.index_of_node[member.node] for member in members), default=0), owner

    return sorted(occupancy.owners, key=first_node)


def _holders(occupancy: Occupancy, order: Sequence[str]) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            owner,
            code_of(number),
            sum(len(member.gpus) for member in occupancy.owners[owner]),
            len({member.node for member in occupancy.owners[owner]}),
        )
        for number, owner in enumerate(order)
    )


def _nodes(fabric: Fabric, occupancy: Occupancy, conditions: Conditions) -> tuple[NodeView, ...]:
    order = _order_of_holders(fabric, occupancy)
    holders_of_node: list[list[int]] = [[] for _ in fabric.nodes]
    holder_of_gpu = [[FREE] * int(gpus) for gpus in fabric.gpus_of_node]
    for number, owner in enumerate(order):
        for member in occupancy.owners[owner]:
            node = fabric.index_of_node[member.node]
            if number not in holders_of_node[node][-1:]:
                holders_of_node[node].append(number)
            for gpu in member.gpus:
                holder_of_gpu[node][gpu] = number
    health, load = conditions.health_of_domain[-1], conditions.load_of_domain[-1]
    places, nics, gpus = _places_in_tori(fabric), nics_to_tell(conditions), gpu_link_notes(fabric)
    return tuple(
        _node(
            fabric, index, tuple(holder_of_gpu[index]), tuple(holders_of_node[index]), order,
            occupancy.usable(node.name), float(health[index]), float(load[index]), nics.get(index, ()),
            gpus.get(index, ()), places.get(index, ""),
        )
        for index, node in enumerate(fabric.nodes)
    )  # fmt: skip


def _places_in_tori(fabric: Fabric) -> dict[int, str]:
    """Return where the first GPU of each node stands, in words."""
    return {
        node: f"torus {index.torus.name} at {','.join(str(at) for at in index.gpu_point(node, 0))}"
        for index in tori_of(fabric)
        for node in index.position_of_node
    }


def _node(
    fabric: Fabric,
    index: int,
    holder_of_gpu: tuple[int, ...],
    holders: tuple[int, ...],
    order: Sequence[str],
    usable: bool,
    health: float,
    load: float,
    nics: tuple[NicView, ...],
    notes_on_gpus: tuple[str, ...],
    place_in_torus: str,
) -> NodeView:
    node = fabric.nodes[index]
    usable = usable and health > 0
    free = holder_of_gpu.count(FREE)
    outer = zip(fabric.cluster.tiers[:-1], node.at, strict=True)
    words = [
        f"{node.name} ({node.machine})",
        ", ".join(f"{tier} {name}" for tier, name in outer),
        f"{free} of {plural(len(holder_of_gpu), 'GPU')} free" if holder_of_gpu else "no GPUs",
        "" if usable else "out of use",
        f"health {percent(health)}" if health < 1 else "",
        f"load {percent(load)}" if load > 0 else "",
        *map(_nic_in_words, nics),
        *notes_on_gpus,
        *(_held(number, order[number], holder_of_gpu) for number in holders),
        *(f"{name}: {domain}" for name, domain in node.partitions),
        place_in_torus,
    ]
    return NodeView(
        node.name, node.machine, holder_of_gpu, holders, usable, health, load, nics,
        tuple(line for line in words if line),
    )  # fmt: skip


def _held(number: int, owner: str, holder_of_gpu: tuple[int, ...]) -> str:
    gpus = [str(gpu) for gpu, holder in enumerate(holder_of_gpu) if holder == number]
    what = f"GPU {','.join(gpus)}" if gpus else "no GPU, but more"
    return f"{code_of(number)}: {owner} ({what})"


def _domain(
    fabric: Fabric, conditions: Conditions, nodes: Sequence[NodeView], tier: int, domain: int
) -> DomainView:
    children = fabric.first_child_of_domain[tier]
    numbers = range(int(children[domain]), int(children[domain + 1]))
    inside: tuple[DomainView, ...] | tuple[NodeView, ...]
    if tier + 1 == fabric.node_tier:
        inside = tuple(nodes[number] for number in numbers)
    else:
        inside = tuple(_domain(fabric, conditions, nodes, tier + 1, number) for number in numbers)
    first = fabric.first_node_of_domain[tier]
    own = nodes[int(first[domain]) : int(first[domain + 1])]
    return DomainView(
        tier=fabric.tiers[tier],
        name=fabric.names_of_domain[tier][domain],
        health=float(conditions.health_of_domain[tier][domain]),
        load=float(conditions.load_of_domain[tier][domain]),
        gpus=sum(len(node.holder_of_gpu) for node in own),
        free_gpus=sum(node.free_gpus for node in own),
        inside=inside,
    )


def _partitions(fabric: Fabric, nodes: Sequence[NodeView]) -> tuple[PartitionView, ...]:
    """Return the domains of the further partitions, in the order in which nodes name them."""
    return tuple(
        _partition(name, domain, [nodes[node] for node in partition.nodes_of_domain(number)])
        for name, partition in partitions_of(fabric).items()
        for number, domain in enumerate(partition.names_of_domain)
    )


def _partition(name: str, domain: str, nodes: Sequence[NodeView]) -> PartitionView:
    gpus = sum(len(node.holder_of_gpu) for node in nodes)
    return PartitionView(name, domain, len(nodes), gpus, sum(node.free_gpus for node in nodes))
