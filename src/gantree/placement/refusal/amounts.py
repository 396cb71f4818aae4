"""Amounts of resources in a refusal: what a gang requests in total, what is free, and names for people.

GPUs, CPUs, memory, its bandwidth and NICs are sums over nodes, other devices too, by name. Parts of GPUs are counted as
members that find one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gantree.model.cluster import Machine
from gantree.model.jobs import COMPUTE_PARTITIONS, Shape
from gantree.model.node_rules import without_tolerations
from gantree.placement.machine import mig
from gantree.placement.machine.numa import most_bandwidth
from gantree.placement.machine.shares import sharing_of
from gantree.placement.refusal.nearest import eligible_nodes
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.placement.slots.parts import is_apart
from gantree.placement.slots.slots import slots_of
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.hardware.numa import BANDWIDTH, amounts_of
from gantree.topology.occupancy.gpus.gpu_state import PartRules, rules_of
from gantree.topology.occupancy.occupancy import UNCOUNTED, Occupancy, memory_KiB, microcpus

FreeOfNode = Callable[[Occupancy], IntArray]


@dataclass(frozen=True, slots=True)
class Resource:
    """The request of a member for one resource, in counted units (`unit` of them make one), and where it is free."""

    name: str
    asked: int
    unit: float
    free_of_node: FreeOfNode


def resources_of(request: TopologyRequest, role: RoleRequest) -> tuple[Resource, ...]:
    """Return the requests of a member of a role: GPUs, parts of GPUs, and other resources; zeros are left out."""
    shape = role.shape
    resources = [
        Resource("gpus", shape.gpus, 1, lambda where: where.free_gpus_of_node),
        Resource("cpus", microcpus(shape.cpus), 1e6, lambda where: where.free_microcpus_of_node),
        Resource(
            "memory_GiB",
            memory_KiB(shape.memory_GiB),
            1 << 20,
            lambda where: where.free_memory_KiB_of_node,
        ),
        Resource("nics", shape.nics, 1, lambda where: where.free_nics_of_node),
        Resource("memory_GBps", amounts_of(0, 0, shape.memory_GBps)[BANDWIDTH], 1e6, _bandwidth),
        *(Resource(name, count, 1, _devices(name)) for name, count in shape.devices),
    ]
    asked = [resource for resource in resources if resource.asked]
    if shape.part:
        asked.insert(0, Resource(shape.mig or "gpu_share", 1, 1, _parts(shape, is_apart(request))))
    return tuple(asked)


def _bandwidth(where: Occupancy) -> IntArray:
    """Return the free memory bandwidth by node, in kB/s; a very large number if it is unknown."""
    fabric = where.fabric
    free = [
        sum(free for _, _, free in where.numa_use(node).free(fabric.machine_of_node(node)))
        for node in range(len(fabric.nodes))
    ]
    return np.minimum(free, UNCOUNTED)


def _devices(name: str) -> FreeOfNode:
    return lambda where: where.devices.free(name)


def _parts(shape: Shape, apart: bool) -> FreeOfNode:
    """Return members by node that get a part of a GPU, other requests aside; apart: each on a GPU of its own."""
    alone = Shape(
        mig=shape.mig,
        gpu_share=shape.gpu_share,
        gpu_memory_GiB=shape.gpu_memory_GiB,
        isolation=shape.isolation,
        neighbours=shape.neighbours,
        models=shape.models,
        labels=shape.labels,
    )
    return lambda where: slots_of(where, alone, alone.models, apart=apart).of_node


# ----- one member


def share_refused(empty: Occupancy, shape: Shape, admitted: BoolArray) -> tuple[str, float] | None:
    """Return why no GPU of these nodes provides a share, for people, and by how many GiB each is too small (0: other).

    None where it is neither the way of sharing nor the memory of a GPU.
    """
    offered = [sharing_of(rules) for rules in _rules_among(empty, admitted)]
    ways = dict.fromkeys(way for sharing in offered for way, _ in sharing.most_of_way)
    if not ways:
        return "a share of a GPU; no GPU there is shared", 0.0
    if shape.isolation is not None and shape.isolation not in ways:
        return f"a share by {shape.isolation}; GPUs are shared by {' or '.join(ways)} only", 0.0
    memories_MiB = [
        sharing.memory_MiB
        for sharing in offered
        if any(shape.isolation in (None, way) for way, _ in sharing.most_of_way)
    ]
    known = [memory_MiB for memory_MiB in memories_MiB if memory_MiB is not None]
    asked_GiB, largest_GiB = shape.gpu_memory_GiB or 0.0, max(known, default=0) / 1024
    if len(known) < len(memories_MiB) or asked_GiB <= largest_GiB:
        return None
    told = f"a share of {amount_in_words(asked_GiB)} GiB of GPU memory"
    largest = f"the largest GPU that is shared so has {amount_in_words(largest_GiB)}"
    return f"{told}; {largest}", asked_GiB - largest_GiB


def _rules_among(empty: Occupancy, nodes: BoolArray) -> list[PartRules]:
    """The rules of these nodes, each once, in the order of the nodes."""
    fabric = empty.fabric
    rules = (
        rules_of(fabric.machine_of_node(node), fabric.nodes[node])
        for node in np.flatnonzero(nodes).tolist()
    )
    return list(dict.fromkeys(rules))


def largest_machine(
    empty: Occupancy, request: TopologyRequest, role: RoleRequest, admitted: BoolArray
) -> tuple[str, float, float] | None:
    """Return (resource, requested, available) of the first resource lacking on the machine that lacks the fewest.

    None where nothing is lacking that is counted so. All machines of a model are alike on the empty fabric.
    """
    machine_of_node = empty.fabric.machine_index_of_node
    lacks = []
    for number, machine in enumerate(empty.fabric.machines):
        of_machine = admitted & (machine_of_node == number)
        if of_machine.any():
            lacks.append(_lacks_of(empty, request, role, int(of_machine.argmax()), machine))
    fewest = min(map(len, lacks))
    first = [lack[0] for lack in lacks if len(lack) == fewest and lack]
    return max(first, key=lambda lack: lack[2], default=None)


def _lacks_of(
    empty: Occupancy, request: TopologyRequest, role: RoleRequest, node: int, machine: Machine
) -> list[tuple[str, float, float]]:
    lacks = []
    for resource in resources_of(request, role):
        if role.shape.part and resource.name in (role.shape.mig, "gpu_share"):
            continue
        if resource.name == "memory_GBps":
            continue
        there = int(resource.free_of_node(empty)[node])
        if resource.asked > there:
            lacks.append((resource.name, resource.asked / resource.unit, there / resource.unit))
    there_GBps = most_bandwidth(machine, role.shape)
    if role.shape.memory_GBps > there_GBps:
        lacks.append(("memory_GBps", role.shape.memory_GBps, there_GBps))
    return lacks


# ----- the whole gang


@dataclass(frozen=True, slots=True)
class Lack:
    """Less of a resource is free on the eligible nodes than some roles request in total; because: the reason."""

    resource: str
    asked: float
    free: float
    roles: tuple[RoleRequest, ...]
    because: str = ""


def lack_of_room(where: Occupancy, request: TopologyRequest) -> Lack | None:
    """The first resource of which too little is free, for one role or for all of them."""
    groups: list[Sequence[RoleRequest]] = [(role,) for role in request.roles]
    if len(groups) > 1:
        groups.append(request.roles)
    for roles in groups:
        lack = _lack(where, request, roles)
        if lack is not None:
            return lack
    return None


def _lack(where: Occupancy, request: TopologyRequest, roles: Sequence[RoleRequest]) -> Lack | None:
    nodes = eligible_nodes(where, roles)
    asked_of: dict[str, int] = {}
    resource_of: dict[str, Resource] = {}
    for role in roles:
        for resource in resources_of(request, role):
            asked_of[resource.name] = asked_of.get(resource.name, 0) + resource.asked * role.members
            resource_of[resource.name] = resource
    for name, asked in asked_of.items():
        resource = resource_of[name]
        free = _free(where, resource, nodes)
        if asked > free:
            because = _because(request, roles, resource)
            return Lack(name, asked / resource.unit, free / resource.unit, tuple(roles), because)
    if nodes is None or nodes.any():
        return None
    return Lack("nodes", 1, 0, tuple(roles))


def _free(where: Occupancy, resource: Resource, nodes: BoolArray | None) -> int:
    if resource.name == "gpus" and nodes is None:
        return int(where.free_gpus_in_domain(0)[0])
    free = resource.free_of_node(where)
    return int(free.sum() if nodes is None else (free * nodes).sum())


def _because(request: TopologyRequest, roles: Sequence[RoleRequest], resource: Resource) -> str:
    """Why each part counts on a GPU of its own."""
    members = sum(role.members for role in roles if role.shape.part)
    is_part = any(
        role.shape.part and resource.name in (role.shape.mig, "gpu_share") for role in roles
    )
    if not (is_part and request.one_member_per_gpu and members > 1):
        return ""
    refused = ", because NCCL refuses two ranks on one GPU" if request.ranks_talk else ""
    return f" on different GPUs{refused}"


def nodes_to_empty(where: Occupancy, lack: Lack) -> int:
    """Nodes where more instances of the lacking profile could be made, were nothing held there.

    A manager that cuts a whole node does so only while nobody holds anything on it.
    """
    nodes = eligible_nodes(where, lack.roles)
    every = range(len(where.fabric.nodes))
    among: Sequence[int] = every if nodes is None else np.flatnonzero(nodes).tolist()
    return sum(
        where.fabric.nodes[node].mig_by == "node" and _is_held_up(where, node, lack.resource)
        for node in among
    )


def _is_held_up(where: Occupancy, node: int, profile: str) -> bool:
    state = where.state_of_node(node)
    if state.recut:
        return False
    cut = replace(state, recut=True)
    return mig.count(cut, profile, apart=False) > mig.count(state, profile, apart=False)


# ----- words


def wanted(role: RoleRequest) -> str:
    """Return the labels and GPU models that a role requests, for people; what it tolerates is no request."""
    asked = without_tolerations(role.shape.labels)
    labels = ", ".join(f"{key}={value}" for key, value in asked)
    models = " or ".join(role.shape.models)
    told = [f"label {labels}" if labels else "", f"GPUs of model {models}" if models else ""]
    return " and ".join(filter(None, told))


NAMES = {
    "gpus": "GPU",
    "cpus": "CPU",
    "memory_GiB": "GiB of memory",
    "memory_GBps": "GB/s of memory bandwidth",
    "nics": "NIC",
    "nodes": "usable node",
    "gpu_share": "share",
}
"""Resources in the singular for people; MIG profiles, modes and devices by name."""


def for_people(resource: str, amount: float) -> str:
    """What so much of a resource is called."""
    if resource in COMPUTE_PARTITIONS:
        return f"partition{'s' * (amount != 1)} in {resource}"
    if resource not in NAMES:
        profile = resource[:1].isdigit()
        return f"instance{'s' * (amount != 1)} of {resource}" if profile else resource
    many = "" if amount == 1 or resource in ("memory_GiB", "memory_GBps") else "s"
    return NAMES[resource] + many


def amount_in_words(amount: float) -> str:
    """A number as people write it: no exponent, and at most three digits of a fraction."""
    return f"{amount:.3f}".rstrip("0").rstrip(".")


def are(amount: float) -> str:
    """The verb for so many."""
    return "is" if amount == 1 else "are"
