"""Assigns nodes and GPUs of a slice to members, numbered in row-major order of the slice.

Where nodes are points of the grid, what members get on each is the same as without a box (`placement.members.members`).
Where they hold several GPUs of it, a member has exactly those of its block, and what is nearest to them.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gantree.model.jobs import Role
from gantree.model.placements import MemberPlacement, Placement, Predicted
from gantree.placement.machine.devices import choose_nics
from gantree.placement.machine.numa import split_numa
from gantree.placement.members.members import placement_of
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.slots.problem import Problem, Spread
from gantree.placement.torus.choice import TorusSlice
from gantree.placement.torus.request import BoxRequest
from gantree.topology.cost.cost import GIB, predict
from gantree.topology.cost.torus_price import all_reduce_s, link_GBps_of
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.fabric.torus_pieces import Pieces, cell_of
from gantree.topology.hardware.numa import NumaUse
from gantree.topology.hardware.tpu_slices import Shape
from gantree.topology.occupancy.occupancy import Occupancy

HostGpus = tuple[int, tuple[int, ...]]
"""(node, GPUs of it): a member's place."""


def placement_of_slice(
    occupancy: Occupancy, box_request: BoxRequest, request: TopologyRequest, torus_slice: TorusSlice
) -> Placement:
    """The placement of a gang in a slice, with its price."""
    fabric, nodes = occupancy.fabric, nodes_of_slice(torus_slice)
    if torus_slice.pieces.points:
        models = (box_request.role.shape.models,)
        spread: Spread = [
            (node, (torus_slice.layout.members_on_host,)) for node in nodes.ravel().tolist()
        ]
        return placement_of(Problem.of(occupancy, request, models), spread, box_request.job)
    members = tuple(_members_on(occupancy, box_request.role, _on_chips(torus_slice, nodes)))
    domain = fabric.domain(*fabric.narrowest_domain(np.unique(nodes).tolist()))
    return Placement(
        members, domain, _priced(torus_slice, fabric, predict(fabric, members, box_request.job))
    )


def _priced(torus_slice: TorusSlice, fabric: Fabric, predicted: Predicted) -> Predicted:
    """The prediction with the torus's own price of the yardstick, where its links are known."""
    model = fabric.machine_of_node(int(torus_slice.pieces.node_at.flat[0])).gpu
    link_GBps, shape = link_GBps_of(model), torus_slice.layout.shape
    if link_GBps is None:
        return predicted
    closed = torus_slice.pieces.any_torus.closed_axes(shape)
    return replace(predicted, comm_s=all_reduce_s(GIB, shape, closed, link_GBps))


def nodes_of_slice(torus_slice: TorusSlice) -> IntArray:
    """The nodes of a slice by host along each axis of the slice."""
    pieces, shape = torus_slice.pieces, torus_slice.layout.shape
    hosts = tuple(-(-size // each) for size, each in zip(shape, pieces.host, strict=True))
    if not pieces.any_torus.cubes_joined(shape):
        return _of_box(torus_slice, hosts)
    inside = pieces.node_at.shape[1:]
    nodes: IntArray = np.empty(hosts, dtype=np.int64)
    slots = np.ndindex(*(all_ // each for all_, each in zip(hosts, inside, strict=True)))
    for slot, (piece, *_) in zip(slots, torus_slice.starts, strict=True):
        part = tuple(
            slice(at * each, (at + 1) * each) for at, each in zip(slot, inside, strict=True)
        )
        nodes[part] = pieces.node_at[piece]
    return nodes


def _of_box(torus_slice: TorusSlice, hosts: Shape) -> IntArray:
    (piece, *start), pieces = torus_slice.starts[0], torus_slice.pieces
    cell = cell_of(pieces, torus_slice.layout.shape)
    axes = [
        (at * side // each + np.arange(count)) % most
        for at, side, each, count, most in zip(
            start, cell, pieces.host, hosts, pieces.node_at.shape[1:], strict=True
        )
    ]
    nodes: IntArray = pieces.node_at[piece][np.ix_(*axes)]
    return nodes


def _on_chips(torus_slice: TorusSlice, nodes_at: IntArray) -> Iterator[HostGpus]:
    """A member for each block of the slice, where nodes hold several GPUs of the grid."""
    layout, host = torus_slice.layout, torus_slice.pieces.host
    corners = [
        skip + np.arange(0, size, side)
        for skip, size, side in zip(
            _first_offset(torus_slice), layout.shape, layout.block, strict=True
        )
    ]
    at_host = np.ix_(*(at // each for at, each in zip(corners, host, strict=True)))
    within = np.ix_(*(at % each for at, each in zip(corners, host, strict=True)))
    nodes = nodes_at[at_host].ravel().tolist()
    first_gpus = np.ravel_multi_index(within, host).ravel().tolist()
    gpus_from = {
        gpu: _block_gpus(torus_slice.pieces, layout.block, gpu) for gpu in dict.fromkeys(first_gpus)
    }
    for node, gpu in zip(nodes, first_gpus, strict=True):
        yield node, gpus_from[gpu]


def _first_offset(torus_slice: TorusSlice) -> Shape:
    """How far inside its host the slice begins along each axis."""
    cell = cell_of(torus_slice.pieces, torus_slice.layout.shape)
    start = torus_slice.starts[0][1:]
    return tuple(
        at * side % each
        for at, side, each in zip(start, cell, torus_slice.pieces.host, strict=True)
    )


def _block_gpus(pieces: Pieces, block: Shape, first: int) -> tuple[int, ...]:
    """GPUs of a block inside a host, from its first on, in row-major order of the block."""
    offset = np.unravel_index(first, pieces.host)
    axes = [int(at) + np.arange(side) for at, side in zip(offset, block, strict=True)]
    return tuple(np.ravel_multi_index(np.ix_(*axes), pieces.host).ravel().tolist())


def _members_on(
    occupancy: Occupancy, role: Role, places: Iterator[HostGpus]
) -> Iterator[MemberPlacement]:
    """Members on their places, each with the nearest NICs and NUMA nodes that have room."""
    fabric, shape = occupancy.fabric, role.shape
    nics_of_node: dict[int, tuple[str, ...]] = {}
    use_of_node: dict[int, NumaUse] = {}
    for rank, (node, gpus) in enumerate(places):
        machine = fabric.machine_of_node(node)
        nics: tuple[str, ...] = ()
        if shape.nics and machine.nics_counted:
            free = nics_of_node.get(node)
            free = occupancy.host.sound_nics(node) if free is None else free
            nics = choose_nics(machine, gpus, free, shape.nics)
            nics_of_node[node] = tuple(nic for nic in free if nic not in nics)
        use = use_of_node.get(node) or occupancy.numa_use(node)
        held = split_numa(machine, use, gpus, nics, shape)
        if held:
            use_of_node[node] = use.changed(machine, held, +1)
        yield MemberPlacement(
            role=role.name,
            rank=rank,
            node=fabric.nodes[node].name,
            gpus=gpus,
            nics=nics,
            cpus=shape.cpus,
            memory_GiB=shape.memory_GiB,
            devices=shape.devices,
            numa=held,
        )
