"""Launcher arguments and NCCL files of each member of a placed gang that put the rank map into effect.

CUDA_VISIBLE_DEVICES is in link order, so a process's local rank is its GPU in that order. RANK is each process's own
and stands in GANTREE_RANKS for all of a member, by local rank. A graph file is made where it is right for every group
(`nccl_hint`), else there is a sentence that says why not.
"""

from dataclasses import dataclass

from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.ranks.gang_gpus import NVLINK
from gantree.placement.ranks.rank_order import RankMap
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.graph.nccl_hint import graph_of, graph_xml


@dataclass(frozen=True, slots=True)
class MemberHint:
    """One member: the ranks of its processes, by local rank; its graph file, or why it has none; its variables."""

    role: str
    member: int
    node: str
    ranks: tuple[int, ...]
    environment: tuple[tuple[str, str], ...]
    graph: str | None
    no_graph_because: str | None


def hints_of(
    fabric: Fabric, job: Job, placement: Placement, ranks: RankMap
) -> tuple[MemberHint, ...]:
    """Hints for every member, in the order of the placement. The map is the placement's."""
    of_member: dict[tuple[str, int], dict[int, int]] = {}
    for placed in ranks.ranks:
        of_member.setdefault((placed.role, placed.member), {})[placed.process] = placed.rank
    nodes = {member.node for member in placement.members}
    hints = []
    for member in placement.members:
        own = of_member.get((member.role, member.rank), {})
        in_order = tuple(own[process] for process in sorted(own))
        graph, because = _graph(fabric, job, member, ranks, leaves_node=len(nodes) > 1)
        environment = _environment(member, in_order)
        hints.append(
            MemberHint(member.role, member.rank, member.node, in_order, environment, graph, because)
        )
    return tuple(hints)


def _environment(member: MemberPlacement, ranks: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    told = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, member.gpus)),
        "GANTREE_RANKS": ",".join(map(str, ranks)),
        "NCCL_IB_HCA": "=" + ",".join(member.nics) if member.nics else "",
    }
    return tuple((name, value) for name, value in told.items() if value)


def _graph(
    fabric: Fabric, job: Job, member: MemberPlacement, ranks: RankMap, *, leaves_node: bool
) -> tuple[str | None, str | None]:
    """(graph file, None) or (None, why there is none)."""
    if not member.gpus or not job.communicates:
        return None, "it has no GPUs, or its members do not talk to each other"
    if NVLINK in fabric.tiers and leaves_node:
        return None, "NVLink joins nodes here, and NCCL takes them for one machine"
    if not ranks.graph_files_fit:
        return (
            None,
            "a process reads one file for all its groups, and these have different GPUs on a node",
        )
    machine = fabric.machine_of_node(fabric.index_of_node[member.node])
    try:
        graph = graph_of(machine, member.gpus, member.nics, leaves_node=leaves_node)
    except (BadInput, Unsupported) as error:
        return None, str(error)
    return graph_xml(graph), None
