"""How many members a node takes by what few of them ask for: parts of GPUs, other devices, memory bandwidth.

`placement.slots` counts what every member takes, GPUs, CPUs, memory and NICs, for all nodes at once; for the rest it
asks here, node by node, and only for shapes that ask for it.
"""

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.numa import gpus_within_bandwidth, members_by_bandwidth
from gantree.placement.parts import slots_of_part
from gantree.topology.fabric import IntArray
from gantree.topology.occupancy import Occupancy


def slots_beside(occupancy: Occupancy, nodes: IntArray, shape: Shape, apart: bool) -> IntArray:
    """slots[position] of the nodes, by index, for members of a shape; other resources are not counted.

    apart: members with a part of a GPU must be on different ones.
    """
    counts = []
    if shape.part:
        counts.append(slots_of_part(occupancy, nodes, shape, apart))
    elif shape.memory_GBps:
        counts.append(_by_bandwidth(occupancy, nodes, shape))
    for name, count in shape.devices:
        counts.append(occupancy.free_devices(name)[nodes] // count)
    least: IntArray = np.minimum.reduce(counts)
    return least


def _by_bandwidth(occupancy: Occupancy, nodes: IntArray, shape: Shape) -> IntArray:
    slots = [_on_node(occupancy, node, shape) for node in nodes.tolist()]
    return np.array(slots, dtype=np.int64)


def _on_node(occupancy: Occupancy, node: int, shape: Shape) -> int:
    machine, use = occupancy.fabric.machine_of_node(node), occupancy.numa_use(node)
    if not shape.gpus:
        return members_by_bandwidth(machine, use, shape)
    free = occupancy.free_mask_of_node[node]
    return gpus_within_bandwidth(machine, use, free, shape).bit_count() // shape.gpus
