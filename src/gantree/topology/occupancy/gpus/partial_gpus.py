"""Remainders of GPUs in use: members that reserve them for an owner that will get more.

The role of such a member is REMAINDER, its rank is the GPU. Its owner drops it before it takes what has become free,
and keeps what is left (`Occupancy.take_free`). What keeping does to a GPU is in `node_state`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.gpus.gpu_state import REMAINDER

if TYPE_CHECKING:
    from gantree.topology.occupancy.occupancy import Occupancy


def members_on_split_nodes(
    occupancy: "Occupancy", members: Sequence[MemberPlacement]
) -> list[MemberPlacement]:
    """The members on nodes where others may hold parts of GPUs, or may prevent that the node is cut for them."""
    index_of_node, parts = occupancy.fabric.index_of_node, occupancy.parts_of_node
    return [m for m in members if m.mig or (parts and index_of_node[m.node] in parts)]


def held_by(occupancy: "Occupancy", owner: str, member: MemberPlacement) -> MemberPlacement | None:
    """What an owner holds of a member; None if it holds nothing of it."""
    for held in occupancy.owners.get(owner, ()):
        if (held.role, held.rank, held.node) == (member.role, member.rank, member.node):
            return held
    return None


def remainders_held(
    occupancy: "Occupancy", owner: str, members: Sequence[MemberPlacement]
) -> list[MemberPlacement]:
    """The remainders that are kept for an owner on the nodes of these members."""
    nodes = {member.node: None for member in members}
    held = occupancy.owners.get(owner, ())
    return [member for member in held if member.role == REMAINDER and member.node in nodes]


def remainders_to_hold(
    occupancy: "Occupancy", lacking: MemberPlacement
) -> Iterator[MemberPlacement]:
    """The remainder of each GPU of which a member lacks something; each must be held before the next is read."""
    node = occupancy.fabric.index_of_node[lacking.node]
    shared = () if lacking.share is None else (lacking.share.gpu,)
    wanted = [(gpu, None) for gpu in (*lacking.gpus, *shared)]
    for gpu, instance in (*wanted, *((part.gpu, part) for part in lacking.mig)):
        share, mig = occupancy.state_of_node(node).remainder_of(gpu, instance)
        if share or mig:
            yield MemberPlacement(REMAINDER, gpu, lacking.node, mig=mig, share=share)
