"""Free resources of one node, consumed member by member, with words for what is missing.

`occupancy` asks here before it takes; nothing here changes an occupancy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gantree.model.cluster import Machine
from gantree.model.jobs import GPU_DEVICES
from gantree.model.placements import MemberPlacement, NumaPart
from gantree.topology.hardware.masks import gpus_of, mask_of
from gantree.topology.hardware.numa import NumaUse
from gantree.topology.occupancy.free_devices import free_of
from gantree.topology.occupancy.gpus.gpu_state import WHOLE
from gantree.topology.occupancy.gpus.node_state import NodeState

KEPT_MASKS = 1 << 16
"""Masks that are remembered; a machine of 8 GPUs has 256 sets of them, in some more orders."""


def microcpus(cpus: float) -> int:
    """CPUs as a whole number, so that taking and giving back never drifts."""
    return round(cpus * 1_000_000)


def memory_KiB(memory_GiB: float) -> int:
    """Memory as a whole number of KiB."""
    return round(memory_GiB * (1 << 20))


@lru_cache(maxsize=KEPT_MASKS)
def mask_of_gpus(gpus: tuple[int, ...]) -> int:
    """Mask of GPU indices, remembered; -1, which is never free, for a GPU twice or below 0."""
    if len(set(gpus)) < len(gpus) or min(gpus, default=0) < 0:
        return -1
    return mask_of(gpus)


class NicMasks(dict[tuple[str, ...], int]):
    """Masks of NICs of one machine by their names; -1, which is never free, for one twice or not there."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._bit_of_nic = {nic.name: bit for bit, nic in enumerate(machine.nics)}
        self._names_of_mask: dict[int, tuple[str, ...]] = {}

    def __missing__(self, names: tuple[str, ...]) -> int:
        there = len(set(names)) == len(names) and all(name in self._bit_of_nic for name in names)
        mask = mask_of(self._bit_of_nic[name] for name in names) if there else -1
        if len(self) >= KEPT_MASKS:
            self.clear()
        self[names] = mask
        return mask

    def names(self, mask: int) -> tuple[str, ...]:
        """Names of the NICs in a mask, in the machine's order."""
        found = self._names_of_mask.get(mask)
        if found is None:
            if len(self._names_of_mask) >= KEPT_MASKS:
                self._names_of_mask.clear()
            found = tuple(name for name, bit in self._bit_of_nic.items() if mask >> bit & 1)
            self._names_of_mask[mask] = found
        return found


class NumaSteps(dict[tuple[NumaUse, tuple[NumaPart, ...], int], tuple[str, NumaUse]]):
    """On one machine: (use, parts, +1 taken or -1 given back) to (what is missing, in words; the use after)."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def __missing__(self, step: tuple[NumaUse, tuple[NumaPart, ...], int]) -> tuple[str, NumaUse]:
        use, parts, sign = step
        problem = use.missing(self._machine, parts) if sign > 0 else ""
        if len(self) >= KEPT_MASKS:
            self.clear()
        self[step] = answer = (problem, use if problem else use.changed(self._machine, parts, sign))
        return answer


class MachineBook:
    """What is worth remembering of one machine, for all nodes of it."""

    __slots__ = ("machine", "nic_masks", "no_use", "numa_steps")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.nic_masks = NicMasks(machine)
        self.numa_steps = NumaSteps(machine)
        self.no_use = NumaUse.none(machine)


@dataclass(slots=True)
class NodeRoom:
    """What is free: GPUs and NICs as masks, states of cut and shared GPUs, amounts, devices, NUMA nodes."""

    book: MachineBook
    state: NodeState
    nics: int
    microcpus: int
    memory_KiB: int
    devices: Mapping[str, int]
    numa: NumaUse

    def has_more_than(self, other: "NodeRoom") -> bool:
        """Whether anything is free that is not in another room of the same node; never wrongly no: parts of GPUs that
        are held otherwise than there count as more.
        """
        gpus = zip(self.state.gpus, other.state.gpus, strict=True)
        held = zip(self.numa.held, other.numa.held, strict=True)
        return (
            any(mine not in (its, WHOLE) for mine, its in gpus)
            or self.state.recut > other.state.recut
            or bool(self.nics & ~other.nics)
            or self.microcpus > other.microcpus
            or self.memory_KiB > other.memory_KiB
            or any(
                free_of(self.devices, name) > free_of(other.devices, name)
                for name in {*self.devices, *other.devices}
            )
            or any(
                one < its for mine, theirs in held for one, its in zip(mine, theirs, strict=True)
            )
        )

    def use_up(self, member: MemberPlacement) -> str:
        """Use up what a member takes; what is not there, in words, and nothing used up where that cannot be."""
        problem = next(self._problems(member), "")
        if not problem:
            self.state = self.state.take_whole(member.gpus) if member.gpus else self.state
            for part in member.mig:
                self.state = self.state.take_instance(part)
            if member.share is not None:
                self.state = self.state.take_share(member.share)
            self.nics ^= self.book.nic_masks[member.nics]
            self.microcpus -= microcpus(member.cpus)
            self.memory_KiB -= memory_KiB(member.memory_GiB)
            self.devices = self._devices_after(member)
            self.numa = self.book.numa_steps[self.numa, member.numa, 1][1]
        return problem

    def part_of(self, member: MemberPlacement) -> MemberPlacement:
        """What of a member is free. What it holds on NUMA nodes stays together: all of it or nothing.

        Of devices that are its GPUs by another name, no more than GPUs: the others come free with the GPUs.
        """
        free_mask = self.state.free_mask()
        gpus = tuple(gpu for gpu in member.gpus if free_mask >> gpu & 1)
        state, mig = self.state.take_whole(gpus), []
        for part in member.mig:
            if not state.why_not_instance(part):
                state = state.take_instance(part)
                mig.append(part)
        share = member.share
        if share is not None and (state.may_be_kept_from(share) or state.why_not_share(share)):
            share = None
        return replace(
            member,
            gpus=gpus,
            nics=tuple(nic for nic in member.nics if self.book.nic_masks[(nic,)] & self.nics),
            cpus=min(member.cpus, self.microcpus / 1_000_000),
            memory_GiB=min(member.memory_GiB, self.memory_KiB / (1 << 20)),
            mig=tuple(mig),
            share=share,
            devices=tuple(
                (name, free)
                for name, count in member.devices
                if (free := min(_most(name, count, gpus), free_of(self.devices, name)))
            ),
            numa=() if self.book.numa_steps[self.numa, member.numa, 1][0] else member.numa,
        )

    def _devices_after(self, member: MemberPlacement) -> Mapping[str, int]:
        left = dict(self.devices)
        for name, count in member.devices:
            left[name] = free_of(left, name) - count
        return left

    def _problems(self, member: MemberPlacement) -> Iterator[str]:
        yield from self._against_gpus(member)
        nics = {nic.name for nic in self.book.machine.nics}
        if not nics.issuperset(member.nics):
            yield f"of the NICs {', '.join(member.nics)} some do not exist"
        elif self.book.nic_masks[member.nics] & ~self.nics:
            yield f"of the NICs {', '.join(member.nics)} some are not free"
        if microcpus(member.cpus) > self.microcpus:
            yield f"{member.cpus:g} CPUs are not free"
        if memory_KiB(member.memory_GiB) > self.memory_KiB:
            yield f"{member.memory_GiB:g} GiB of memory are not free"
        for name, left in self._devices_after(member).items():
            if left < 0:
                yield f"{dict(member.devices)[name]} {name} are not free"
        yield from filter(None, [self.book.numa_steps[self.numa, member.numa, 1][0]])

    def _against_gpus(self, member: MemberPlacement) -> Iterator[str]:
        gpus, state = mask_of_gpus(member.gpus), self.state
        if gpus < 0:
            yield f"a GPU twice or below 0 in {member.gpus}"
        missing = gpus & ~state.free_mask()
        if missing:
            yield f"GPUs {', '.join(map(str, gpus_of(missing)))} are not free"
        state = state.take_whole(member.gpus)
        for part in member.mig:
            problem = state.why_not_instance(part)
            if problem:
                yield problem
            state = state.take_instance(part)
        if member.share is not None:
            yield from filter(None, [state.why_not_share(member.share)])


def first_problem(
    members: Sequence[MemberPlacement],
    index_of_node: Mapping[str, int],
    room_of_node: Callable[[int], NodeRoom],
) -> str:
    """What of these members, taken together, is not there or not free, in words; empty if all of it is."""
    left_of_node: dict[int, NodeRoom] = {}
    for member in members:
        index = index_of_node.get(member.node)
        if index is None:
            return f"there is no node {member.node}"
        left = left_of_node.get(index) or left_of_node.setdefault(index, room_of_node(index))
        problem = left.use_up(member)
        if problem:
            return f"on {member.node} {problem}"
    return ""


def _most(name: str, count: int, gpus: Sequence[int]) -> int:
    """How many of a member's devices of a name it may hold with these of its GPUs."""
    return min(count, len(gpus)) if name in GPU_DEVICES else count
