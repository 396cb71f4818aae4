"""Checks an occupancy: recounts everything from the holdings of owners.

Only what members hold can be counted again. Which instances are idle is history; of those is checked that they could be
there.
"""

from typing import TYPE_CHECKING

import numpy as np

from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.hardware.mig import MigInstance
from gantree.topology.occupancy.gpus.gpu_state import GpuStates, states_of_mask

if TYPE_CHECKING:
    from gantree.topology.occupancy.occupancy import Occupancy

COUNTED = ("nic_mask_of_node", "nics_of_node", "microcpus_of_node", "memory_KiB_of_node")


def check_books(occupancy: "Occupancy", empty: "Occupancy") -> None:
    """AssertionError where two hold the same, or something is not what the owners leave free; empty: to count in."""
    fresh = recounted(occupancy, empty)
    for name in COUNTED:
        ours = np.asarray(getattr(occupancy.host, name))
        theirs = np.asarray(getattr(fresh.host, name))
        assert (ours == theirs).all(), f"{name} is not what the owners leave free"
    for name in {*occupancy.devices.names(), *fresh.devices.names()}:
        ours, theirs = occupancy.devices.free(name), fresh.devices.free(name)
        assert (ours == theirs).all(), f"free_devices {name} is not what the owners leave free"
    for node in occupancy.host.numa_of_node.keys() | fresh.host.numa_of_node.keys():
        assert occupancy.numa_use(node) == fresh.numa_use(node), f"numa_of_node {node}"
    _check_gpus(occupancy, fresh)
    _check_sums(occupancy)
    held_back = held_back_again(occupancy)
    assert (occupancy.held_back_node == held_back).all(), "held_back_node is not what is free last"


def _check_gpus(occupancy: "Occupancy", fresh: "Occupancy") -> None:
    cut = occupancy.parts_of_node.keys() | fresh.parts_of_node.keys()
    for node, mask in enumerate(occupancy.free_mask_of_node):
        if node not in cut:
            assert mask == fresh.free_mask_of_node[node], f"free_mask_of_node {node}"
            continue
        state = occupancy.state_of_node(node)
        assert mask == state.free_mask(), f"free_mask_of_node {node}"
        assert _held(state.gpus) == _held(fresh.state_of_node(node).gpus), f"parts_of_node {node}"
        _check_instances(occupancy, node, state.gpus)


def _held(states: GpuStates) -> list[tuple[object, ...]]:
    return [(state.whole, state.held_instances, state.tenants, state.kept) for state in states]


def _check_instances(occupancy: "Occupancy", node: int, states: GpuStates) -> None:
    """All instances, held and idle, must be able to stand beside each other."""
    table = occupancy.state_of_node(node).rules.table
    for state in states:
        there: list[MigInstance] = []
        for one in state.instances:
            assert state.mig and table is not None, f"{state} has instances"
            assert one.start in table.fits(there, one.profile), f"{state} cannot be"
            there.append(MigInstance(one.profile, one.start))
        assert not (state.mig and (state.whole or state.tenants)), f"{state} cannot be"


def _check_sums(occupancy: "Occupancy") -> None:
    free = [mask.bit_count() for mask in occupancy.free_mask_of_node]
    assert (occupancy.free_gpus_of_node == free).all(), "free_gpus_of_node counts other GPUs"
    for tier, first in enumerate(occupancy.fabric.first_node_of_domain):
        sums = np.add.reduceat(occupancy.free_gpus_of_node, first[:-1])
        assert (occupancy.free_gpus_in_domain(tier) == sums).all(), f"free_gpus_in_domain {tier}"


def held_back_again(occupancy: "Occupancy") -> BoolArray:
    """Mask of the nodes that are held back, counted off domain by domain."""
    fabric = occupancy.fabric
    held = np.zeros(len(fabric.nodes), dtype=np.bool_)
    busy = {member.node for members in occupancy.owners.values() for member in members}
    for tier, most in fabric.cluster.spares.items():
        first = fabric.first_node_of_domain[fabric.tiers.index(tier)].tolist()
        for domain, start in enumerate(first[:-1]):
            left = most
            for node in range(first[domain + 1] - 1, start - 1, -1):
                if (
                    left
                    and occupancy.spares.usable_node[node]
                    and fabric.nodes[node].name not in busy
                ):
                    held[node] = True
                    left -= 1
    return held


def recounted(occupancy: "Occupancy", empty: "Occupancy") -> "Occupancy":
    """The empty one with what the owners hold, without idle instances; AssertionError where two hold the same."""
    empty.host.set_broken_nics(occupancy.host.broken_nic_mask_of_node)
    gpus_of_node = empty.fabric.gpus_of_node
    for node in list(empty.parts_of_node):
        empty.split.set(node, states_of_mask(int(gpus_of_node[node]), -1))
    for owner, members in occupancy.owners.items():
        for member in members:
            node = empty.fabric.index_of_node[member.node]
            problem = empty.room_of_node(node, recut=True).use_up(member)
            assert not problem, f"{owner} on {member.node}: {problem}"
            empty.hold(owner, (member,))
    return empty
