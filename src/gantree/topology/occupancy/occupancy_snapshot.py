"""A snapshot of an occupancy by names: holdings, split GPUs, unusable nodes.

What follows from the holders is counted again. What depends on history is in the snapshot: the order in which owners
came, and which MIG instances are idle. So a restored occupancy decides as the first one does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.conditions import sound_nodes
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.gpus.gpu_state import PLAIN, GpuState
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """What does not follow from the members alone: the holders in order if there are several, and split GPUs.

    usable is None if it is what the health of the site says.
    """

    node: str
    holders: tuple[str, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    usable: bool | None = None


@dataclass(frozen=True, slots=True)
class OccupancySnapshot:
    """Owners with their members, in the order in which they came; members are None if `known` has them."""

    owners: tuple[tuple[str, tuple[MemberPlacement, ...] | None], ...]
    nodes: tuple[NodeSnapshot, ...]


def occupancy_snapshot_of(
    occupancy: Occupancy, known: Mapping[str, tuple[MemberPlacement, ...]]
) -> OccupancySnapshot:
    """The snapshot of an occupancy. known: members of owners that the snapshot need not repeat."""
    owners = tuple(
        (owner, None if known.get(owner) == members else members)
        for owner, members in occupancy.owners.items()
    )
    sound = sound_nodes(occupancy.fabric)
    nodes = []
    for index, node in enumerate(occupancy.fabric.nodes):
        holders = tuple(occupancy.holders_on_node.get(index, ()))
        usable = bool(occupancy.usable_node[index])
        one = NodeSnapshot(
            node.name,
            holders if len(holders) > 1 else (),
            occupancy.parts_of_node.get(index, ()),
            None if usable == bool(sound[index]) else usable,
        )
        if one != NodeSnapshot(node.name):
            nodes.append(one)
    return OccupancySnapshot(owners, tuple(nodes))


def restored_occupancy(
    fabric: Fabric, snapshot: OccupancySnapshot, known: Mapping[str, tuple[MemberPlacement, ...]]
) -> Occupancy:
    """The occupancy of a snapshot; AssertionError if the fabric has no room for it."""
    occupancy = Occupancy(fabric, empty=True)
    index_of_node = fabric.index_of_node
    cut = {index_of_node[one.node]: one.gpus for one in snapshot.nodes if one.gpus}
    for node in occupancy.parts_of_node.keys() | cut.keys():
        occupancy.split.set(node, cut.get(node) or (PLAIN,) * int(fabric.gpus_of_node[node]))
    for owner, members in snapshot.owners:
        held = known[owner] if members is None else members
        for member in held:
            _count(occupancy, index_of_node[member.node], member)
        occupancy.enter(owner, held)
    for one in snapshot.nodes:
        node = index_of_node[one.node]
        if one.holders:
            counts = occupancy.holders_on_node[node]
            occupancy.holders_on_node[node] = {owner: counts[owner] for owner in one.holders}
        if one.usable is not None:
            occupancy.mark(one.node, one.usable)
    return occupancy


def _count(occupancy: Occupancy, node: int, member: MemberPlacement) -> None:
    """Count what a member holds, except GPUs of a node whose split GPUs are in the snapshot."""
    occupancy.host.add(node, member, -1)
    if member.gpus and node not in occupancy.parts_of_node:
        occupancy.free.add(node, member.gpus, -1)
