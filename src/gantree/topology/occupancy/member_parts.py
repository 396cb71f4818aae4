"""Members of which an owner holds a part: what they lack, what of it is free, and the enlarged holdings.

Room is held for waiting gangs as it comes free (`take_free`), so this is called very often. Most members have whole
GPUs on nodes without split GPUs: they take the fast path of `part_of`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.gpus.mig_cut import over
from gantree.topology.occupancy.gpus.partial_gpus import (
    held_by,
    members_on_split_nodes,
    remainders_held,
    remainders_to_hold,
)
from gantree.topology.occupancy.node_room import mask_of_gpus

if TYPE_CHECKING:
    from gantree.topology.occupancy.occupancy import Occupancy

T = TypeVar("T")


def take_free(occupancy: "Occupancy", owner: str, members: Sequence[MemberPlacement]) -> None:
    """As `Occupancy.take_free`."""
    index_of_node, host = occupancy.fabric.index_of_node, occupancy.host
    if in_parts := members_on_split_nodes(occupancy, members):
        occupancy.drop(owner, remainders_held(occupancy, owner, in_parts))
    uncut = {
        node: occupancy.state_of_node(node).gpus
        for node in (index_of_node[member.node] for member in in_parts)
    }
    held_of = by_member(occupancy.owners.get(owner, ()))
    for member in members:
        node = index_of_node[member.node]
        held = held_of.get((member.role, member.rank, member.node))
        has_more = host.microcpus_view[node] > 0, host.memory_KiB_view[node] > 0
        if held is not None and not may_gain(member, held, *has_more):
            continue
        part = part_of(occupancy, node, without(member, held))
        if held is None:
            occupancy.hold(owner, (part,))
        elif not is_nothing(part):
            occupancy.exchange(owner, held, grown(held, part))
    for member in in_parts:
        for rest in remainders_to_hold(
            occupancy, without(member, held_by(occupancy, owner, member))
        ):
            occupancy.hold(owner, (rest,))
    for node, states in uncut.items():
        occupancy.split.set(node, over(states, occupancy.state_of_node(node).gpus))
    if held_of and len(occupancy.owners[owner]) > len(held_of):
        occupancy.owners[owner] = _in_order_of(members, occupancy.owners[owner])


def _in_order_of(
    members: Sequence[MemberPlacement], parts: Sequence[MemberPlacement]
) -> tuple[MemberPlacement, ...]:
    """Parts in the order of the members of which they are, whenever each was taken: a fold takes them at once."""
    place = {(each.role, each.rank, each.node): number for number, each in enumerate(members)}
    last = len(place)  # of remainders of GPUs
    return tuple(sorted(parts, key=lambda part: place.get((part.role, part.rank, part.node), last)))


def part_of(occupancy: "Occupancy", node: int, lacking: MemberPlacement) -> MemberPlacement:
    """What of a member is free on its node, by index. What it holds on NUMA nodes stays together."""
    if not _is_whole(lacking) or node in occupancy.parts_of_node:
        return occupancy.room_of_node(node).part_of(lacking)
    gpus, free_mask = lacking.gpus, occupancy.free_mask_of_node[node]
    if mask_of_gpus(gpus) & ~free_mask:
        gpus = tuple(gpu for gpu in gpus if free_mask >> gpu & 1)
    host = occupancy.host
    book, nics, free_nics = host.book_of_node[node], lacking.nics, host.nic_mask_of_node[node]
    masks = book.nic_masks
    if nics and masks[nics] & ~free_nics:
        nics = tuple(nic for nic in nics if masks[(nic,)] & free_nics)
    numa = lacking.numa
    if numa and book.numa_steps[host.numa_use(node), numa, 1][0]:
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
