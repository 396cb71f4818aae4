"""An occupancy as plain names, to be made again elsewhere: who holds what, how GPUs are cut, what may not be used.

What can be counted from the holders is counted again; what is history is kept: the order in which they came, and which
MIG instances stand idle. So `made_again` gives an occupancy from which everything follows as from the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.conditions import sound_nodes
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.parts import PLAIN, GpuState


@dataclass(frozen=True, slots=True)
class KeptNode:
    """What is particular of one node: who holds anything of it, in order, where several do; its GPUs, if some are cut.

    usable is told where it is not what the health of the site says.
    """

    node: str
    holders: tuple[str, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    usable: bool | None = None


@dataclass(frozen=True, slots=True)
class KeptOccupancy:
    """owners hold members, in the order in which they came; None: what whoever makes it again knows of them."""

    owners: tuple[tuple[str, tuple[MemberPlacement, ...] | None], ...]
    nodes: tuple[KeptNode, ...]


def kept(occupancy: Occupancy, known: Mapping[str, tuple[MemberPlacement, ...]]) -> KeptOccupancy:
    """What is particular of an occupancy. known: members of owners that need not be said again."""
    owners = tuple(
        (owner, None if known.get(owner) == members else members)
        for owner, members in occupancy.owners.items()
    )
    sound = sound_nodes(occupancy.fabric)
    nodes = []
    for index, node in enumerate(occupancy.fabric.nodes):
        holders = tuple(occupancy._holders_on_node.get(index, ()))
        usable = bool(occupancy.usable_node[index])
        one = KeptNode(
            node.name,
            holders if len(holders) > 1 else (),
            occupancy.parts_of_node.get(index, ()),
            None if usable == bool(sound[index]) else usable,
        )
        if one != KeptNode(node.name):
            nodes.append(one)
    return KeptOccupancy(owners, tuple(nodes))


def made_again(
    fabric: Fabric, kept: KeptOccupancy, known: Mapping[str, tuple[MemberPlacement, ...]]
) -> Occupancy:
    """The occupancy that was kept; AssertionError where the fabric has no room for it."""
    occupancy = Occupancy(fabric, empty=True)
    index_of_node = fabric.index_of_node
    cut = {index_of_node[one.node]: one.gpus for one in kept.nodes if one.gpus}
    for node in occupancy.parts_of_node.keys() | cut.keys():
        occupancy.parts_of_node[node] = cut.get(node) or (PLAIN,) * int(fabric.gpus_of_node[node])
        occupancy._follow_parts(node)
    for owner, members in kept.owners:
        held = known[owner] if members is None else members
        for member in held:
            _count(occupancy, index_of_node[member.node], member)
        occupancy._enter(owner, held)
    for one in kept.nodes:
        node = index_of_node[one.node]
        if one.holders:
            counts = occupancy._holders_on_node[node]
            occupancy._holders_on_node[node] = {owner: counts[owner] for owner in one.holders}
        if one.usable is not None:
            occupancy.mark(one.node, one.usable)
    return occupancy


def _count(occupancy: Occupancy, node: int, member: MemberPlacement) -> None:
    """Count what a member holds, but for GPUs of a node of which it is known how they are cut and held."""
    if node not in occupancy.parts_of_node:
        occupancy._add_whole(node, member, -1)
    else:
        occupancy._add_rest(node, member, -1)
    for name, count in member.devices:
        occupancy.devices.add(name, node, -count)
