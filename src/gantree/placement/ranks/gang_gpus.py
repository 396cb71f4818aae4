"""The GPUs of a placed gang in topology order, each at a position, and which ranks may exchange positions.

A process with one GPU of its own may have any rank of its role. If a member has more or fewer processes than GPUs (one
launcher for eight GPUs, two processes a GPU), its ranks stay consecutive, and only whole members are exchanged. Members
without whole GPUs keep their ranks, because traffic is priced between GPUs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement
from gantree.placement.machine.devices import inner_domains
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.masks import gpus_of

NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class GangGpus:
    """The GPUs of a gang as arrays by position, in topology order. Position p has rank p unless ranks are reordered.

    member numbers the members that have GPUs, role the roles; island is the NVLink domain inside the node.
    processes_alone: every process has exactly one GPU.
    """

    node: IntArray
    gpu: IntArray
    member: IntArray
    role: IntArray
    island: IntArray
    processes_alone: bool

    @classmethod
    def of(cls, fabric: Fabric, job: Job, members: Sequence[MemberPlacement]) -> "GangGpus":
        """Return the GPUs of members, which are given in rank order."""
        with_gpus = [member for member in members if member.gpus]
        nodes = [fabric.index_of_node[member.node] for member in with_gpus]
        counts = [len(member.gpus) for member in with_gpus]
        number_of_role = {role.name: number for number, role in enumerate(job.roles)}
        processes = {role.name: role.processes for role in job.roles}
        node = np.repeat(np.array(nodes, dtype=np.int64), counts)
        gpu = np.array([gpu for member in with_gpus for gpu in member.gpus], dtype=np.int64)
        roles = [number_of_role[member.role] for member in with_gpus]
        return cls(
            node=node,
            gpu=gpu,
            member=np.repeat(np.arange(len(with_gpus), dtype=np.int64), counts),
            role=np.repeat(np.array(roles, dtype=np.int64), counts),
            island=_island(fabric, node, gpu),
            processes_alone=all(processes[member.role] == len(member.gpus) for member in with_gpus),
        )

    def __len__(self) -> int:
        return len(self.node)

    @property
    def first_of_member(self) -> IntArray:
        """The first position of each member."""
        return np.searchsorted(self.member, np.arange(int(self.member[-1]) + 1)).astype(np.int64)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(node, GPU) by position."""
        return list(zip(self.node.tolist(), self.gpu.tolist(), strict=True))

    def domains(self, fabric: Fabric) -> IntArray:
        """domain[level, position] of every tier below the fabric, down to NVLink domains inside the node."""
        tiers = [fabric.domain_of_node[tier][self.node] for tier in range(1, fabric.node_tier + 1)]
        return np.stack([*tiers, self.island])


def _island(fabric: Fabric, node: IntArray, gpu: IntArray) -> IntArray:
    """The NVLink domain inside the node of each (node, GPU); 0 where the machine has one."""
    most = max((machine.gpus for machine in fabric.machines), default=0)
    table = np.zeros((len(fabric.machines), max(most, 1)), dtype=np.int64)
    machines = fabric.machine_index_of_node[node]
    for number in dict.fromkeys(machines.tolist()):
        for island, mask in enumerate(inner_domains(fabric.machines[number], NVLINK)):
            table[number, list(gpus_of(mask))] = island
    island_of: IntArray = table[machines, gpu]
    return island_of
