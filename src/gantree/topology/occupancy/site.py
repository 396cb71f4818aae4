"""MIG mode and allocations of the cluster file, as members that an occupancy holds.

An allocation says how many NICs it has, not which: those near its GPUs are taken, broken ones last.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.model.cluster import Allocation, Cluster, Machine, Mig, Node
from gantree.model.errors import BadInput
from gantree.model.placements import MemberPlacement, holder_beside
from gantree.text.words import plural
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.mig import MigInstance, MigTable, mig_table
from gantree.topology.occupancy.gpus.gpu_state import PLAIN, GpuState, GpuStates, Instance

if TYPE_CHECKING:
    from gantree.topology.occupancy.occupancy import Occupancy

ROLE = "site"
OWNER_PREFIX = "site:"
"""Before the names of those who hold something that gantree did not start."""


def with_beside(job: str) -> tuple[str, str]:
    """The owners that go when a job goes: itself, and what is held beside it."""
    return job, OWNER_PREFIX + holder_beside(job)


def site_states(fabric: Fabric) -> dict[int, GpuStates]:
    """States of the GPUs of each node that has some in MIG mode, all instances idle. BadInput as `states_of_site`."""
    states = {
        index: states_of_site(fabric.machine_of_node(index), node)
        for index, node in enumerate(fabric.nodes)
        if node.mig
    }
    return {index: of_node for index, of_node in states.items() if of_node is not None}


def states_of_site(machine: Machine, node: Node) -> GpuStates | None:
    """States that the cluster file gives the GPUs of a node, all instances idle; None where no GPU is in MIG mode.

    Raises BadInput for GPUs that are not there or have no MIG, profiles that they have not, and instances that do not
    fit beside each other.
    """
    if not node.mig:
        return None
    states = [PLAIN] * machine.gpus
    for cut in node.mig:
        where = f"node {node.name}: mig: GPU {cut.gpu}"
        if not 0 <= cut.gpu < machine.gpus:
            raise BadInput(f"{where}: machine {machine.name} has {plural(machine.gpus, 'GPU')}")
        table = mig_table(machine.gpu)
        if table is None:
            raise BadInput(f"{where}: {machine.gpu or 'its GPU model'} has no MIG")
        try:
            states[cut.gpu] = GpuState(mig=True, instances=_idle(table, cut))
        except BadInput as problem:
            raise BadInput(f"{where}: {problem}") from problem
    return tuple(states)


def _idle(table: MigTable, cut: Mig) -> tuple[Instance, ...]:
    there: list[MigInstance] = []
    for profile, start in cut.instances:
        table.slices(MigInstance(profile, start))
        if start not in table.fits(there, profile):
            beside = ", ".join(f"{one.profile} at {one.start}" for one in there)
            raise BadInput(f"{profile} at {start} does not fit beside {beside}")
        there.append(MigInstance(profile, start))
    return tuple(sorted(Instance(one.start, one.profile) for one in table.filled(there)))


def cut_as_now(occupancy: "Occupancy") -> Cluster:
    """The cluster with its GPUs in MIG mode, and their instances, as they are now and not as its file said."""
    cluster = occupancy.fabric.cluster
    nodes = tuple(
        replace(node, mig=_cuts(occupancy.parts_of_node.get(index, ())))
        if node.mig or index in occupancy.parts_of_node
        else node
        for index, node in enumerate(occupancy.fabric.nodes)
    )
    return replace(cluster, nodes=nodes)


def _cuts(states: GpuStates) -> tuple[Mig, ...]:
    return tuple(
        Mig(gpu, tuple((one.profile, one.start) for one in state.instances))
        for gpu, state in enumerate(states)
        if state.mig
    )


def site_members(occupancy: "Occupancy") -> Iterator[tuple[str, MemberPlacement]]:
    """Yield (owner, member) of each allocation, to be held before the next one is asked for.

    A member holds one share at most, so an allocation of several is several members. Instances are cut as the
    allocation says, whoever cuts there. Raises BadInput where it contradicts the machine or another allocation.
    """
    ranks: dict[str, int] = {}
    for allocation in occupancy.fabric.cluster.allocations:
        owner = OWNER_PREFIX + allocation.job
        for member in _members(occupancy, allocation, ranks.get(owner, 0)):
            ranks[owner] = ranks.get(owner, 0) + 1
            node = occupancy.fabric.index_of_node[allocation.node]
            problem = occupancy.room_of_node(node, recut=True).use_up(member)
            if problem:
                raise BadInput(f"allocation of {allocation.job} on {allocation.node}: {problem}")
            yield owner, member


def _members(
    occupancy: "Occupancy", allocation: Allocation, first_rank: int
) -> Iterator[MemberPlacement]:
    node = occupancy.fabric.index_of_node.get(allocation.node)
    if node is None:
        raise BadInput(f"allocation of {allocation.job}: no node {allocation.node}")
    yield MemberPlacement(
        role=ROLE,
        rank=first_rank,
        node=allocation.node,
        gpus=allocation.gpus,
        nics=_nearest_nics(occupancy, node, allocation),
        cpus=allocation.cpus,
        memory_GiB=allocation.memory_GiB,
        mig=allocation.mig,
        share=next(iter(allocation.shares), None),
        devices=allocation.devices,
    )
    for rank, share in enumerate(allocation.shares[1:], first_rank + 1):
        yield MemberPlacement(role=ROLE, rank=rank, node=allocation.node, share=share)


def _nearest_nics(occupancy: "Occupancy", node: int, allocation: Allocation) -> tuple[str, ...]:
    """NICs that nobody holds, those near one of the allocation's GPUs first, broken ones last."""
    machine = occupancy.fabric.machine_of_node(node)
    if not machine.nics_counted:
        return ()
    near = {*allocation.gpus, *(part.gpu for part in allocation.mig)}
    near.update(share.gpu for share in allocation.shares)
    whole = set(occupancy.host.sound_nics(node))
    held_by_none = occupancy.host.nic_mask_of_node[node]
    nics = [nic for bit, nic in enumerate(machine.nics) if held_by_none >> bit & 1]
    if len(nics) < allocation.nics:
        raise BadInput(
            f"allocation of {allocation.job} on {allocation.node}: "
            f"{plural(allocation.nics, 'NIC')} asked, {len(nics)} free"
        )
    nics.sort(key=lambda nic: (nic.name not in whole, not near.intersection(nic.near)))
    return tuple(nic.name for nic in nics[: allocation.nics])
