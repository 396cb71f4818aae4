"""The rest of GPUs of which others hold parts, as members that keep it for who is to have more of these GPUs.

Such a member is called REST, and its rank is the GPU. Its owner drops it before it takes what has become free, and what
is left then is kept anew (`Occupancy.take_free`). What keeping does to a GPU is in `parts`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.parts import REST

if TYPE_CHECKING:
    from gantree.topology.occupancy.occupancy import Occupancy


def those_in_parts(
    occupancy: "Occupancy", members: Sequence[MemberPlacement]
) -> list[MemberPlacement]:
    """Those on nodes on which others may hold parts of GPUs, or may keep the node from being cut for them."""
    index_of_node, parts = occupancy.fabric.index_of_node, occupancy.parts_of_node
    return [m for m in members if m.mig or (parts and index_of_node[m.node] in parts)]


def held_by(occupancy: "Occupancy", owner: str, member: MemberPlacement) -> MemberPlacement | None:
    """What an owner holds of a member; None where it has not begun to."""
    for held in occupancy.owners.get(owner, ()):
        if (held.role, held.rank, held.node) == (member.role, member.rank, member.node):
            return held
    return None


def rests_held(
    occupancy: "Occupancy", owner: str, members: Sequence[MemberPlacement]
) -> list[MemberPlacement]:
    """What is kept for an owner on the nodes of these members."""
    nodes = {member.node: None for member in members}
    held = occupancy.owners.get(owner, ())
    return [member for member in held if member.role == REST and member.node in nodes]


def rests_of(occupancy: "Occupancy", lacking: MemberPlacement) -> Iterator[MemberPlacement]:
    """What is to be kept of each GPU of which a member lacks something; each is to be held before the next is asked."""
    node = occupancy.fabric.index_of_node[lacking.node]
    shared = () if lacking.share is None else (lacking.share.gpu,)
    wanted = [(gpu, None) for gpu in (*lacking.gpus, *shared)]
    for gpu, instance in (*wanted, *((part.gpu, part) for part in lacking.mig)):
        share, mig = occupancy.state_of_node(node).rest_of(gpu, instance)
        if share or mig:
            yield MemberPlacement(REST, gpu, lacking.node, mig=mig, share=share)
