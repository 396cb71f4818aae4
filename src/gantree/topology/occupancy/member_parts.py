"""Members of which an owner holds a part: what they lack, what of that is free, and what they hold with more.

Room is held for gangs that wait as it comes free (`Occupancy.take_free`), so this is asked very often. Most members
have whole GPUs on nodes where none is cut or shared: for these there is a short way.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.node_room import mask_of_gpus

if TYPE_CHECKING:
    from gantree.topology.occupancy.node_room import MachineBook
    from gantree.topology.occupancy.occupancy import Occupancy

T = TypeVar("T")


def part_of(
    occupancy: "Occupancy", node: int, book: "MachineBook", lacking: MemberPlacement
) -> MemberPlacement:
    """What of a member is free on its node, by index. What it holds on NUMA nodes stays together."""
    if not _is_whole(lacking) or node in occupancy.parts_of_node:
        return occupancy.room_of_node(node).part_of(lacking)
    gpus, free_mask = lacking.gpus, occupancy.free_mask_of_node[node]
    if mask_of_gpus(gpus) & ~free_mask:
        gpus = tuple(gpu for gpu in gpus if free_mask >> gpu & 1)
    nics, free_nics, masks = lacking.nics, occupancy.free_nic_mask_of_node[node], book.nic_masks
    if nics and masks[nics] & ~free_nics:
        nics = tuple(nic for nic in nics if masks[(nic,)] & free_nics)
    numa = lacking.numa
    if numa and book.numa_steps[occupancy.numa_use(node), numa, 1][0]:
        numa = ()
    return MemberPlacement(
        lacking.role,
        lacking.rank,
        lacking.node,
        gpus,
        nics,
        min(lacking.cpus, int(occupancy.free_microcpus_of_node[node]) / 1_000_000),
        min(lacking.memory_GiB, int(occupancy.free_memory_KiB_of_node[node]) / (1 << 20)),
        numa=numa,
    )


def by_member(parts: Sequence[MemberPlacement]) -> dict[Hashable, MemberPlacement]:
    """What an owner holds, by role, rank and node of the member of which it is."""
    return {(part.role, part.rank, part.node): part for part in parts}


def is_nothing(part: MemberPlacement) -> bool:
    """Whether a part of a member holds nothing."""
    in_parts = part.mig or part.share or part.devices
    return not (part.gpus or part.nics or part.cpus or part.memory_GiB or part.numa or in_parts)


def _is_whole(member: MemberPlacement) -> bool:
    """Whether a member has whole GPUs, NICs, CPUs and memory, and neither parts of GPUs nor other devices."""
    return not (member.mig or member.share or member.devices)


def without(member: MemberPlacement, held: MemberPlacement | None) -> MemberPlacement:
    """What a member still lacks."""
    if held is None:
        return member
    if _is_whole(member):
        return MemberPlacement(
            member.role,
            member.rank,
            member.node,
            _others(member.gpus, held.gpus),
            _others(member.nics, held.nics),
            max(0.0, member.cpus - held.cpus),
            max(0.0, member.memory_GiB - held.memory_GiB),
            numa=() if held.numa else member.numa,
        )
    had = dict(held.devices)
    return replace(
        member,
        gpus=_others(member.gpus, held.gpus),
        nics=_others(member.nics, held.nics),
        cpus=max(0.0, member.cpus - held.cpus),
        memory_GiB=max(0.0, member.memory_GiB - held.memory_GiB),
        mig=_others(member.mig, held.mig),
        share=member.share if held.share is None else None,
        devices=tuple(
            (name, lacking)
            for name, count in member.devices
            if (lacking := count - had.get(name, 0)) > 0
        ),
        numa=() if held.numa else member.numa,
    )


def may_gain(
    member: MemberPlacement, held: MemberPlacement, more_cpus: bool, more_memory: bool
) -> bool:
    """Whether anything that a member lacks might be free on its node; more_...: any of that is free there."""
    if member.mig or member.share or member.devices or held.numa != member.numa:
        return True
    if len(held.nics) < len(member.nics) or len(held.gpus) < len(member.gpus):
        return True
    if more_cpus and held.cpus < member.cpus:
        return True
    return more_memory and held.memory_GiB < member.memory_GiB


def grown(held: MemberPlacement, part: MemberPlacement) -> MemberPlacement:
    """A member that holds another part beside what it has."""
    devices = dict(held.devices)
    for name, count in part.devices:
        devices[name] = devices.get(name, 0) + count
    return replace(
        held,
        gpus=(*held.gpus, *part.gpus),
        nics=(*held.nics, *part.nics),
        cpus=held.cpus + part.cpus,
        memory_GiB=held.memory_GiB + part.memory_GiB,
        mig=(*held.mig, *part.mig),
        share=held.share or part.share,
        devices=tuple(devices.items()),
        numa=(*held.numa, *part.numa),
    )


def _others(wanted: Sequence[T], held: Sequence[T]) -> tuple[T, ...]:
    return tuple(one for one in wanted if one not in held)
