"""Secondary resources, which few members request: parts of GPUs, other devices, memory bandwidth.

`placement.slots.slots` counts primary resources (GPUs, CPUs, memory, NICs) for all nodes at once. These are counted
node by node, and only for shapes that request them.
"""

from collections.abc import Hashable

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.machine.intra_node import Layers, members_inside, most_inside
from gantree.placement.machine.numa import ANY_NUMBER, gpus_within_bandwidth, members_by_bandwidth
from gantree.placement.slots.parts import equivalence_key, members_of_part
from gantree.placement.slots.sequential_members import RoleMembers, members_in_sequence
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.occupancy.occupancy import Occupancy


def slots_by_secondary_resources(
    occupancy: Occupancy, nodes: IntArray, shape: Shape, apart: bool, layers: Layers = ()
) -> IntArray:
    """slots[position] of the nodes, by index, for members of a shape; other resources are not counted.

    apart: members with a part of a GPU must be on different ones. layers are kept by those with parts or bandwidth.
    """
    counts = []
    if is_sequential(shape):
        counts.append(_slots(occupancy, nodes, shape, apart, layers))
    for name, count in shape.scarce:
        counts.append(occupancy.devices.free(name)[nodes] // count)
    least: IntArray = np.minimum.reduce(counts)
    return least


def is_sequential(shape: Shape) -> bool:
    """Return whether slots under layers depend on more than free GPUs."""
    return shape.part or shape.memory_GBps > 0


def _slots(
    occupancy: Occupancy, nodes: IntArray, shape: Shape, apart: bool, layers: Layers
) -> IntArray:
    """Count slots once for nodes with equal states of GPUs and NUMA nodes."""
    of_state: dict[Hashable, int] = {}
    slots = np.zeros(len(nodes), dtype=np.int64)
    for position, node in enumerate(nodes.tolist()):
        key = equivalence_key(occupancy, node, shape)
        members = of_state.get(key)
        if members is None:
            members = of_state[key] = members_on_node(occupancy, node, shape, apart, layers)
        slots[position] = members
    return slots


def members_on_node(
    occupancy: Occupancy, node: int, shape: Shape, apart: bool, layers: Layers = ()
) -> int:
    """How many members find GPUs, or parts of them, and memory bandwidth beside them on a node, by index."""
    machine, use = occupancy.fabric.machine_of_node(node), occupancy.numa_use(node)
    if shape.memory_GBps and machine.numa_memory_GBps is not None:
        gpus = _by_gpus(occupancy, node, shape, apart)
        most = min(members_by_bandwidth(machine, use, shape), gpus)
        if layers or shape.part:
            return members_in_sequence(
                occupancy, node, RoleMembers(shape, most, layers), apart=apart
            )
        return most
    if shape.part:
        state, every = occupancy.state_of_node(node), (1 << machine.gpus) - 1
        return most_inside(
            machine, every, layers, lambda gpus: members_of_part(state, shape, apart, gpus)
        )
    if shape.gpus:
        return members_inside(machine, occupancy.free_mask_of_node[node], shape.gpus, layers)
    return ANY_NUMBER


def _by_gpus(occupancy: Occupancy, node: int, shape: Shape, apart: bool) -> int:
    """Members by GPUs, of which bandwidth can serve so many."""
    if shape.part:
        return members_of_part(occupancy.state_of_node(node), shape, apart)
    if not shape.gpus:
        return ANY_NUMBER
    machine, free = occupancy.fabric.machine_of_node(node), occupancy.free_mask_of_node[node]
    served = gpus_within_bandwidth(machine, occupancy.numa_use(node), free, shape)
    return served.bit_count() // shape.gpus
