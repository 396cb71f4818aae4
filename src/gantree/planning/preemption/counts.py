"""A preemption problem in counts: the gang's needs, room of each node, and victims on it.

Of several roles the one with the most GPUs is counted, with as many more members as hold the GPUs of the others.

Gangs of parts of GPUs, with devices or memory bandwidth, spread over wider domains, of slices in slices, of roles with
topologies of their own or apart from others are not counted at all: `Counted.of` gives None.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from gantree.model.jobs import Job
from gantree.placement.request.topology_request import (
    RoleRequest,
    TopologyRequest,
    topology_request_of,
)
from gantree.placement.slots.problem import Problem
from gantree.planning.preemption.nodes import NodeVictims, request_of, victims_of_nodes
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

Range = tuple[int, int]
"""First node of a domain, and the one after its last."""


@dataclass(frozen=True, eq=False)
class Counted:
    """`need` members in one domain of tier whole_at, in slices of `run` in one domain of tier run_at each (1: no
    slices).

    slots[node]: members that fit now; most_slots[node]: without all victims; a node on which slices must stay whole
    holds whole ones. victims_of_node has the nodes with victims, in node order.
    """

    fabric: Fabric
    need: int
    whole_at: int
    run: int
    run_at: int
    slots: list[int]
    most_slots: IntArray
    victims_of_node: Mapping[int, NodeVictims]
    nodes_of_victim: Sequence[Sequence[int]]

    @classmethod
    def of(cls, occupancy: Occupancy, job: Job, owners: Sequence[str]) -> "Counted | None":
        """Read what is free and what the owners hold; None for a gang that cannot be counted."""
        request = topology_request_of(occupancy.fabric, job)
        if not _is_countable(occupancy.fabric, job, request):
            return None
        role, need = _in_one_role(request)
        whole_at = max(request.whole_at, role.whole_at)
        run, run_at = _slices(role, whole_at)
        unit = run if run_at == occupancy.fabric.node_tier else 1
        alone = replace(request, roles=(role,))
        table = Problem.of(occupancy, alone, (role.shape.models,)).tables[0]
        most = role.most_in_domain[-1] if role.most_in_domain else role.members
        slots = np.minimum(table.of_node, most) // unit * unit
        found = victims_of_nodes(occupancy, request_of(role.shape), owners, most)
        if role.layers or request.together:
            _limit_to_linked_gpus(found, slots)
        admits = _admitting(occupancy, role)
        victims_of_node = {node: found[node] for node in sorted(found) if admits[node]}
        most_slots = slots.copy()
        for node, node_victims in victims_of_node.items():
            most_slots[node] = node_victims.most_slots() // unit * unit
        nodes = _nodes_of_victim(victims_of_node, len(owners))
        return cls(
            occupancy.fabric,
            need,
            whole_at,
            run,
            run_at,
            slots.tolist(),
            most_slots,
            victims_of_node,
            nodes,
        )

    @property
    def unit(self) -> int:
        """The members that must be together on a node."""
        return self.run if self.run_at == self.fabric.node_tier else 1

    @cached_property
    def victim_nodes(self) -> list[int]:
        """The nodes with victims."""
        return list(self.victims_of_node)

    @cached_property
    def sums(self) -> list[int]:
        """sums[n]: the slots of the first n nodes now."""
        return list(accumulate(self.slots, initial=0))

    def domains(self) -> list[Range]:
        """Domains that could hold the gang if all victims left."""
        most = self.most_slots
        if self.run > self.unit:
            first_of_run = self.fabric.first_node_of_domain[self.run_at][:-1]
            whole = np.add.reduceat(most, first_of_run) // self.run * self.run
            most = np.zeros_like(most)
            most[first_of_run] = whole
        first = self.fabric.first_node_of_domain[self.whole_at]
        enough = np.add.reduceat(most, first[:-1]) >= self.need
        return [(int(first[d]), int(first[d + 1])) for d in np.flatnonzero(enough)]

    def domains_of_slices(self, domain: Range) -> Iterator[Range]:
        """Domains of which one must hold a slice, inside another."""
        first = self.fabric.first_node_of_domain[self.run_at]
        low, high = np.searchsorted(first, domain).tolist()
        for number in range(low, high):
            yield int(first[number]), int(first[number + 1])


def _is_countable(fabric: Fabric, job: Job, request: TopologyRequest) -> bool:
    """Whether the slots of nodes describe the problem, except inside a node."""
    if job.topology.box is not None or request.apart or request.contradiction:
        return False
    if len(request.roles) > 1 and not all(map(_is_plain, request.roles)):
        return False
    role, _ = _in_one_role(request)
    shape = role.shape
    if shape.part or shape.devices or shape.memory_GBps or not (shape.gpus or shape.cpus):
        return False
    if any(limit < role.members for limit in role.most_in_domain[: fabric.node_tier]):
        return False
    whole_at = max(request.whole_at, role.whole_at)
    return len(set(role.multiple_in_domain[whole_at + 1 :]) - {1}) <= 1


def _is_plain(role: RoleRequest) -> bool:
    """Whether a role has no constraint of its own."""
    own = role.whole_at or role.layers or role.is_limited or role.shape.part
    return not own and role.multiple_in_domain[0] == 1


def _in_one_role(request: TopologyRequest) -> tuple[RoleRequest, int]:
    """The role with the most GPUs, and how many of its members hold the GPUs of all roles."""
    role = max(request.roles, key=lambda each: each.shape.gpus * each.members)
    if not role.shape.gpus:
        return role, role.members
    gpus = sum(each.shape.gpus * each.members for each in request.roles)
    return role, -(-gpus // role.shape.gpus)


def _slices(role: RoleRequest, whole_at: int) -> tuple[int, int]:
    """(members of a slice, the tier of which one domain must hold it): inside a domain that holds the whole gang."""
    tiers = range(len(role.multiple_in_domain) - 1, whole_at, -1)
    tier = next((tier for tier in tiers if role.multiple_in_domain[tier] > 1), None)
    return (1, 0) if tier is None else (role.multiple_in_domain[tier], tier)


def _admitting(occupancy: Occupancy, role: RoleRequest) -> BoolArray:
    """A mask of nodes that may take a member once there is room."""
    mask: BoolArray = occupancy.fabric.nodes_with(role.shape.labels, role.shape.models)
    return mask & occupancy.usable_node & ~occupancy.held_back_node


def _limit_to_linked_gpus(victims_of_node: Mapping[int, NodeVictims], slots: IntArray) -> None:
    """Count free GPUs of one linked domain only, where members must be inside one domain of a node."""
    for node, node_victims in victims_of_node.items():
        node_victims.free[0] = min(node_victims.free[0], int(slots[node]) * node_victims.request[0])


def _nodes_of_victim(victims_of_node: Mapping[int, NodeVictims], victims: int) -> list[list[int]]:
    nodes: list[list[int]] = [[] for _ in range(victims)]
    for node, node_victims in victims_of_node.items():
        for number in dict.fromkeys(
            [number for victims, _ in node_victims.groups for number in victims]
        ):
            nodes[number].append(node)
    return nodes
