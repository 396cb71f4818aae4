"""The GPUs of a placed gang as seats for its ranks, in topology order, and which of them may change places.

A process that has one GPU to itself may take any rank of its role. Where a member's processes and GPUs are not as many
(one launcher for eight GPUs, two processes a GPU) its ranks stay together and in order, and only whole members change
places. Members without whole GPUs keep their ranks: traffic is priced between GPUs.
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
class Seats:
    """GPUs that hold ranks; arrays are by seat, in topology order. Seat s holds rank s where nothing is changed.

    member counts the members that have GPUs, role those roles; island is the NVLink domain inside the node.
    processes_alone: every process has one GPU.
    """

    node: IntArray
    gpu: IntArray
    member: IntArray
    role: IntArray
    island: IntArray
    processes_alone: bool

    @classmethod
    def of(cls, fabric: Fabric, job: Job, members: Sequence[MemberPlacement]) -> "Seats":
        """Seat the GPUs of members, which stand in rank order."""
        seated = [member for member in members if member.gpus]
        nodes = [fabric.index_of_node[member.node] for member in seated]
        counts = [len(member.gpus) for member in seated]
        number_of_role = {role.name: number for number, role in enumerate(job.roles)}
        processes = {role.name: role.processes for role in job.roles}
        node = np.repeat(np.array(nodes, dtype=np.int64), counts)
        gpu = np.array([gpu for member in seated for gpu in member.gpus], dtype=np.int64)
        roles = [number_of_role[member.role] for member in seated]
        return cls(
            node=node,
            gpu=gpu,
            member=np.repeat(np.arange(len(seated), dtype=np.int64), counts),
            role=np.repeat(np.array(roles, dtype=np.int64), counts),
            island=_island(fabric, node, gpu),
            processes_alone=all(processes[member.role] == len(member.gpus) for member in seated),
        )

    def __len__(self) -> int:
        return len(self.node)

    @property
    def first_of_member(self) -> IntArray:
        """The first seat of each member."""
        return np.searchsorted(self.member, np.arange(int(self.member[-1]) + 1)).astype(np.int64)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(node, GPU) by seat."""
        return list(zip(self.node.tolist(), self.gpu.tolist(), strict=True))

    def domains(self, fabric: Fabric) -> IntArray:
        """domain[level, seat] of every tier below the fabric, down to NVLink domains inside the node."""
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
