"""Where each rank of a gang is: its node, its domain of every tier, and the NVLink domain of the GPUs that it has.

Written into the run directory as `ranks.json` before the first process starts: `gantree.training` reads the
neighbours of a rank from it, and the run's record keeps it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.orders import MemberLaunch, StartGang
from gantree.placement.machine.devices import inner_domains

NVLINK = "nvlink"
NODE = "node"


def rank_map(order: StartGang, cluster: Cluster, nodes: Mapping[str, Node]) -> dict[str, Any]:
    """A record for each member, in order of their node ranks. Every node that is named must be in nodes."""
    masks = {
        name: _nvlink_masks(cluster.machines[name])
        for name in {nodes[member.node].machine for member in order.members}
    }
    return {
        "tiers": list(cluster.tiers),
        "parallelism": [list(way) for way in order.parallelism],
        "members": [
            _member(member, nodes[member.node], cluster, masks[nodes[member.node].machine])
            for member in sorted(order.members, key=lambda each: each.node_rank)
        ],
    }


def _member(
    member: MemberLaunch, node: Node, cluster: Cluster, masks: Sequence[int]
) -> dict[str, Any]:
    machine = cluster.machines[node.machine]
    parts = (*(part.gpu for part in member.mig), *((member.share.gpu,) if member.share else ()))
    gpus = member.gpus or parts
    own = [
        _of_process(gpus, local_rank, member.processes) for local_rank in range(member.processes)
    ]
    return {
        "role": member.role,
        "member": member.rank,
        "node": member.node,
        "machine": node.machine,
        "gpu": machine.gpu,
        "ranks": list(member.rank_of_process),
        "gpus": list(member.gpus),
        "mig": [f"{part.gpu}:{part.profile}:{part.start}" for part in member.mig],
        "gpu_share": None if member.share is None else member.share.compute,
        "nics": list(member.nics),
        "cpus": member.cpus,
        "memory_GiB": member.memory_GiB,
        "domains": _domains(cluster, node),
        NVLINK: [_nvlink_name(node.name, each, masks) for each in own],
    }  # fmt: skip


def _domains(cluster: Cluster, node: Node) -> dict[str, str]:
    """The path of its domain by tier, widest first."""
    outer = {
        tier: "/".join(node.at[: number + 1]) for number, tier in enumerate(cluster.tiers[:-1])
    }
    return {**outer, NODE: node.name}


def _of_process(gpus: Sequence[int], local_rank: int, processes: int) -> Sequence[int]:
    """The GPUs of one process: its own where there is one for each, else all of the member."""
    return gpus[local_rank : local_rank + 1] if len(gpus) == processes else gpus


def _nvlink_name(node: str, gpus: Sequence[int], masks: Sequence[int]) -> str:
    """NVLink domains on a node that GPUs lie in, as one name; the node's for a process without GPUs."""
    own = sum(1 << gpu for gpu in gpus)
    numbers = [str(number) for number, mask in enumerate(masks) if mask & own]
    return f"{node}#{'+'.join(numbers)}" if numbers else node


def _nvlink_masks(machine: Machine) -> tuple[int, ...]:
    return tuple(inner_domains(machine, NVLINK))
