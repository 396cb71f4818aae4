"""A cluster with its allocations, from a cluster file or from the daemon's answer."""

from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from gantree import __version__
from gantree.model.cluster import Cluster
from gantree.model.errors import GantreeError, NotFound, Unreachable
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

BROKEN = (
    ValidationError,
    GantreeError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AssertionError,
)
"""What building a site from an answer raises where that holds nonsense.

Fabric and occupancy assert what a reader of files would have checked.
"""


class Site(NamedTuple):
    """What is drawn."""

    fabric: Fabric
    occupancy: Occupancy

    def holder_of_gpu_on_node(self) -> dict[str, list[str | None]]:
        """The holder of each whole GPU, by node in topology order; None for a GPU without one."""
        holders: dict[str, list[str | None]] = {
            node.name: [None] * self.fabric.machine_of_node(index).gpus
            for index, node in enumerate(self.fabric.nodes)
        }
        for owner, members in self.occupancy.owners.items():
            for member in members:
                for gpu in member.gpus:
                    holders[member.node][gpu] = owner
        return holders


def described_site(cluster: Cluster) -> Site:
    """The cluster as its description says, with the allocations in it."""
    fabric = Fabric.build(cluster)
    return Site(fabric, Occupancy(fabric))


def answered_site(answer: dict[str, Any]) -> Site:
    """The daemon's cluster as GET /v1/cluster tells it.

    Raises NotFound where the daemon has none yet, Unreachable where what it tells is none.
    """
    if answer["cluster"] is None:
        raise NotFound("the daemon has no cluster yet")
    try:
        return _answered_site(answer)
    except BROKEN as error:
        raise Unreachable(
            f"the answer has no valid cluster; the server is no gantree daemon of version {__version__}"
            f" ({_first(error)})"
        ) from error


def _first(error: Exception) -> str:
    """What is wrong, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def _answered_site(answer: dict[str, Any]) -> Site:
    fabric = Fabric.build(TypeAdapter(Cluster).validate_python(answer["cluster"]))
    occupancy = Occupancy(fabric, empty=True)
    held = TypeAdapter(dict[str, tuple[MemberPlacement, ...]]).validate_python(answer["held"])
    for owner, members in held.items():
        for member in members:
            if member.node not in fabric.index_of_node:
                raise ValueError(f"no node {member.node} in this fabric")
        occupancy.take_free(owner, members)
    for node in answer["unusable"]:
        if node in fabric.index_of_node:
            occupancy.mark(node, usable=False)
    return Site(fabric, occupancy)
