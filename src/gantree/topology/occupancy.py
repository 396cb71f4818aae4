"""Who holds what: the only thing in the topology that changes.

Arrays beside the fabric say what is free on each node; `owners` says who holds the rest, member by member, and is
the truth: `check` recomputes the arrays from it. CPUs and memory are kept as whole numbers (millionths, KiB), so
taking and giving back never drifts. Every touched node goes into a change log that `indexes` follow: what searches
keep to be fast, built again from nothing wherever the log is too short.

An owner is a job id, a claim, or "site:<job>" for what the cluster file says is taken by others.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from gantree.model.cluster import Allocation, Machine
from gantree.model.errors import BadInput
from gantree.model.placements import MemberPlacement
from gantree.topology.conditions import broken_nics, sound_nodes
from gantree.topology.fabric import BoolArray, Fabric, IntArray
from gantree.topology.masks import gpus_of, mask_of

UNCOUNTED = 1 << 40
"""Free amount of a resource that the site did not count; no member asks for as much."""


def microcpus(cpus: float) -> int:
    """CPUs as a whole number, so that taking and giving back never drifts."""
    return round(cpus * 1_000_000)


def memory_KiB(memory_GiB: float) -> int:
    """Memory as a whole number of KiB."""
    return round(memory_GiB * (1 << 20))


class Index(Protocol):
    """What a search keeps beside an occupancy, following its change log."""

    def check(self, occupancy: "Occupancy") -> None:
        """AssertionError where it does not say what the occupancy says."""


class Occupancy:
    """What of a fabric is taken. Read the arrays, never write them.

    free_mask_of_node[node] has a bit per free GPU, free_nic_mask_of_node[node] one per NIC of the machine that nobody
    holds; the arrays beside them count them, of the NICs only those that are not broken. broken_nic_mask_of_node has
    an entry for each node with NICs of health 0. A node that is not usable, and a broken NIC, stays with its holder.
    """

    def __init__(self, fabric: Fabric, *, empty: bool = False) -> None:
        """A fabric with the site's own allocations taken, or without them where empty.

        Nodes that the site says are broken (health 0) are not usable, nor are such NICs. Raises BadInput where an
        allocation contradicts the machine it is on or another allocation.
        """
        self.fabric = fabric
        machines = [fabric.machine_of_node(node) for node in range(len(fabric.nodes))]
        self.free_mask_of_node: list[int] = [(1 << machine.gpus) - 1 for machine in machines]
        self.free_nic_mask_of_node: list[int] = [
            (1 << len(machine.nics)) - 1 for machine in machines
        ]
        self.free_gpus_of_node: IntArray = fabric.gpus_of_node.copy()
        self.free_nics_of_node: IntArray = _array(
            [len(machine.nics) if machine.nics_counted else UNCOUNTED for machine in machines]
        )
        self.broken_nic_mask_of_node: dict[int, int] = {}
        self.free_microcpus_of_node: IntArray = _array(
            [UNCOUNTED if m.cpus is None else microcpus(m.cpus) for m in machines]
        )
        self.free_memory_KiB_of_node: IntArray = _array(
            [UNCOUNTED if m.memory_GiB is None else memory_KiB(m.memory_GiB) for m in machines]
        )
        self.usable_node: BoolArray = sound_nodes(fabric)
        self.owners: dict[str, tuple[MemberPlacement, ...]] = {}
        self._holders_on_node: dict[int, dict[str, int]] = {}
        self.indexes: dict[Hashable, Index] = {}
        self._emptied: Occupancy | None = None
        self._log: list[int] = []
        self._log_starts_at = 0
        self._break_nics(broken_nics(fabric))
        if not empty:
            for allocation in fabric.cluster.allocations:
                self._take_site_allocation(allocation)

    # ----- reading

    @property
    def version(self) -> int:
        """Grows with every touched node."""
        return self._log_starts_at + len(self._log)

    def changed_since(self, version: int) -> Sequence[int] | None:
        """Nodes touched since a version, each once, in node order; None where the log no longer reaches back."""
        if version < self._log_starts_at:
            return None
        return sorted(set(self._log[version - self._log_starts_at :]))

    def free_gpus_in_domain(self, tier: int) -> IntArray:
        """GPUs that nobody holds, by domain of a tier, usable or not."""
        first = self.fabric.first_node_of_domain[tier][:-1]
        return np.add.reduceat(self.free_gpus_of_node, first)

    def free_gpus(self, node: str) -> tuple[int, ...]:
        """GPUs that nobody holds on a node, rising, whether or not the node is usable."""
        return gpus_of(self.free_mask_of_node[self._index(node)])

    def free_nics(self, node: str) -> tuple[str, ...]:
        """NICs that are whole or worn and that nobody holds on a node, in the machine's order."""
        index = self._index(node)
        return self.free_nics_of_index(index)

    def free_nics_of_index(self, node: int) -> tuple[str, ...]:
        """As `free_nics`, by node index."""
        free = self.free_nic_mask_of_node[node] & ~self.broken_nic_mask_of_node.get(node, 0)
        nics = self.fabric.machine_of_node(node).nics
        return tuple(nic.name for bit, nic in enumerate(nics) if free >> bit & 1)

    def holder_of_gpu(self, node: str, gpu: int) -> str | None:
        """Who holds a GPU."""
        for owner in self._holders_on_node.get(self._index(node), ()):
            if any(gpu in held.gpus for held in self.owners[owner] if held.node == node):
                return owner
        return None

    def usable(self, node: str) -> bool:
        """Whether anything may be placed on a node."""
        return bool(self.usable_node[self._index(node)])

    # ----- changing

    def mark(self, node: str, usable: bool) -> None:
        """Say whether a node may be used from now on; what is held there stays held."""
        index = self._index(node)
        self.usable_node[index] = usable
        self._touch(index)

    def take(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Give an owner all of these; AssertionError, and nothing taken, if any of it is not free."""
        missing = self.missing(members)
        assert not missing, f"{owner}: {missing}"
        self._hold(owner, members)

    def missing(self, members: Sequence[MemberPlacement]) -> str:
        """What of these, taken together, is not there or not free, in words; empty if all of it is."""
        free: dict[int, _Free] = {}
        for member in members:
            index = self.fabric.index_of_node.get(member.node)
            if index is None:
                return f"there is no node {member.node}"
            left = free.get(index) or free.setdefault(index, _Free.of(self, index))
            problem = left.use_up(member)
            if problem:
                return f"on {member.node} {problem}"
        return ""

    def take_free(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Give an owner what of these is free now and not yet its own."""
        for member in members:
            held = self._held_by(owner, member)
            rest = _without(member, held)
            part = _Free.of(self, self._index(member.node)).part_of(rest)
            if held is None:
                self._hold(owner, (part,))
            else:
                self._grow(owner, held, part)

    def give_back(self, owner: str) -> None:
        """Free all that an owner holds; nothing happens if it holds nothing."""
        for member in self.owners.pop(owner, ()):
            index = self.fabric.index_of_node[member.node]
            self._add(index, member, +1)
            holders = self._holders_on_node[index]
            holders[owner] -= 1
            if not holders[owner]:
                del holders[owner]

    def copy(self) -> "Occupancy":
        """The same state, to be changed on its own; shape indexes are built again when asked for."""
        twin = Occupancy.__new__(Occupancy)
        twin.fabric = self.fabric
        twin.free_mask_of_node = self.free_mask_of_node.copy()
        twin.free_nic_mask_of_node = self.free_nic_mask_of_node.copy()
        twin.free_gpus_of_node = self.free_gpus_of_node.copy()
        twin.free_nics_of_node = self.free_nics_of_node.copy()
        twin.broken_nic_mask_of_node = self.broken_nic_mask_of_node.copy()
        twin.free_microcpus_of_node = self.free_microcpus_of_node.copy()
        twin.free_memory_KiB_of_node = self.free_memory_KiB_of_node.copy()
        twin.usable_node = self.usable_node.copy()
        twin.owners = self.owners.copy()
        twin._holders_on_node = {node: who.copy() for node, who in self._holders_on_node.items()}
        twin.indexes = {}
        twin._emptied = self._emptied
        twin._log = []
        twin._log_starts_at = 0
        return twin

    def confined_to(self, nodes: range) -> "Occupancy":
        """A copy in which only these nodes, by index, may be used, and of them only those that may be anyway."""
        twin = self.copy()
        twin.usable_node[: nodes.start] = False
        twin.usable_node[nodes.stop :] = False
        return twin

    def emptied(self) -> "Occupancy":
        """The same fabric with nothing taken, every node usable, every NIC whole. Shared and kept: do not change it."""
        if self._emptied is None:
            self._emptied = Occupancy(self.fabric, empty=True)
            self._emptied.usable_node[:] = True
            self._emptied._break_nics({})
            self._emptied._emptied = self._emptied
        return self._emptied

    def check(self) -> None:
        """Recompute everything from the owners; AssertionError where the arrays say otherwise."""
        fresh = Occupancy(self.fabric, empty=True)
        fresh._break_nics(self.broken_nic_mask_of_node)
        for owner, members in self.owners.items():
            fresh.take(owner, members)
        for name in (
            "free_mask_of_node", "free_nic_mask_of_node", "free_gpus_of_node", "free_nics_of_node",
            "free_microcpus_of_node", "free_memory_KiB_of_node",
        ):  # fmt: skip
            ours, theirs = np.asarray(getattr(self, name)), np.asarray(getattr(fresh, name))
            assert (ours == theirs).all(), f"{name} is not what the owners leave free"
        for index in self.indexes.values():
            index.check(self)

    # ----- how

    def _index(self, node: str) -> int:
        index = self.fabric.index_of_node.get(node)
        assert index is not None, f"no node {node} in this fabric"
        return index

    def _break_nics(self, broken_nic_mask_of_node: dict[int, int]) -> None:
        """Count exactly these NICs as broken; of an occupancy in which nobody holds any."""
        for node, mask in self.broken_nic_mask_of_node.items():
            self.free_nics_of_node[node] += mask.bit_count()
        self.broken_nic_mask_of_node = broken_nic_mask_of_node.copy()
        for node, mask in self.broken_nic_mask_of_node.items():
            self.free_nics_of_node[node] -= mask.bit_count()

    def _hold(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        for member in members:
            index = self._index(member.node)
            self._add(index, member, -1)
            holders = self._holders_on_node.setdefault(index, {})
            holders[owner] = holders.get(owner, 0) + 1
        self.owners[owner] = (*self.owners.get(owner, ()), *members)

    def _held_by(self, owner: str, member: MemberPlacement) -> MemberPlacement | None:
        for held in self.owners.get(owner, ()):
            if (held.role, held.rank, held.node) == (member.role, member.rank, member.node):
                return held
        return None

    def _grow(self, owner: str, held: MemberPlacement, part: MemberPlacement) -> None:
        grown = replace(
            held,
            gpus=(*held.gpus, *part.gpus),
            nics=(*held.nics, *part.nics),
            cpus=held.cpus + part.cpus,
            memory_GiB=held.memory_GiB + part.memory_GiB,
        )
        index = self._index(held.node)
        self._add(index, held, +1)
        self._add(index, grown, -1)
        self.owners[owner] = tuple(grown if one is held else one for one in self.owners[owner])

    def _add(self, node: int, member: MemberPlacement, sign: int) -> None:
        self.free_mask_of_node[node] ^= mask_of(member.gpus)
        self.free_gpus_of_node[node] += sign * len(member.gpus)
        self.free_microcpus_of_node[node] += sign * microcpus(member.cpus)
        self.free_memory_KiB_of_node[node] += sign * memory_KiB(member.memory_GiB)
        if member.nics:
            held = _nic_mask(self.fabric.machine_of_node(node), member.nics)
            counted = held & ~self.broken_nic_mask_of_node.get(node, 0)
            self.free_nic_mask_of_node[node] ^= held
            self.free_nics_of_node[node] += sign * counted.bit_count()
        self._touch(node)

    def _touch(self, node: int) -> None:
        self._log.append(node)
        if len(self._log) > 4 * len(self.fabric.nodes) + 1024:
            half = len(self._log) // 2
            del self._log[:half]
            self._log_starts_at += half

    def _take_site_allocation(self, allocation: Allocation) -> None:
        index = self.fabric.index_of_node.get(allocation.node)
        if index is None:
            raise BadInput(f"allocation of {allocation.job}: no node {allocation.node}")
        member = MemberPlacement(
            role="site",
            rank=len(self.owners.get(f"site:{allocation.job}", ())),
            node=allocation.node,
            gpus=allocation.gpus,
            nics=self._nearest_nics(index, allocation),
            cpus=allocation.cpus,
            memory_GiB=allocation.memory_GiB,
        )
        problem = _Free.of(self, index).use_up(member)
        if problem:
            raise BadInput(f"allocation of {allocation.job} on {allocation.node}: {problem}")
        self._hold(f"site:{allocation.job}", (member,))

    def _nearest_nics(self, node: int, allocation: Allocation) -> tuple[str, ...]:
        """NICs that nobody holds, those near one of the allocation's GPUs first, broken ones last."""
        machine = self.fabric.machine_of_node(node)
        if not machine.nics_counted:
            return ()
        near, whole = set(allocation.gpus), set(self.free_nics_of_index(node))
        held_by_none = self.free_nic_mask_of_node[node]
        nics = [nic for bit, nic in enumerate(machine.nics) if held_by_none >> bit & 1]
        if len(nics) < allocation.nics:
            raise BadInput(
                f"allocation of {allocation.job} on {allocation.node}: "
                f"{allocation.nics} NICs asked, {len(nics)} free"
            )
        nics.sort(key=lambda nic: (nic.name not in whole, not near.intersection(nic.near)))
        return tuple(nic.name for nic in nics[: allocation.nics])


class _Free:
    """What is free on one node, to be used up member by member."""

    def __init__(self, machine: Machine, gpus: int, nics: int, cpus: int, memory: int) -> None:
        self.machine, self.gpus, self.nics = machine, gpus, nics
        self.microcpus, self.memory_KiB = cpus, memory

    @classmethod
    def of(cls, occupancy: Occupancy, node: int) -> "_Free":
        return cls(
            occupancy.fabric.machine_of_node(node),
            occupancy.free_mask_of_node[node],
            occupancy.free_nic_mask_of_node[node],
            int(occupancy.free_microcpus_of_node[node]),
            int(occupancy.free_memory_KiB_of_node[node]),
        )

    def use_up(self, member: MemberPlacement) -> str:
        """Use up what a member takes; what is not there, in words, where that cannot be."""
        problem = next(self._problems(member), "")
        if not problem:
            self.gpus ^= mask_of(member.gpus)
            self.nics ^= _nic_mask(self.machine, member.nics)
            self.microcpus -= microcpus(member.cpus)
            self.memory_KiB -= memory_KiB(member.memory_GiB)
        return problem

    def _problems(self, member: MemberPlacement) -> Iterator[str]:
        gpus = mask_of(member.gpus)
        nics = {nic.name for nic in self.machine.nics}
        if gpus.bit_count() != len(member.gpus):
            yield f"a GPU twice in {member.gpus}"
        if gpus & ~self.gpus:
            yield f"GPUs {', '.join(map(str, gpus_of(gpus & ~self.gpus)))} are not free"
        if not nics.issuperset(member.nics):
            yield f"of the NICs {', '.join(member.nics)} some do not exist"
        elif _nic_mask(self.machine, member.nics) & ~self.nics:
            yield f"of the NICs {', '.join(member.nics)} some are not free"
        if microcpus(member.cpus) > self.microcpus:
            yield f"{member.cpus:g} CPUs are not free"
        if memory_KiB(member.memory_GiB) > self.memory_KiB:
            yield f"{member.memory_GiB:g} GiB of memory are not free"

    def part_of(self, member: MemberPlacement) -> MemberPlacement:
        """What of a member is free."""
        return replace(
            member,
            gpus=tuple(gpu for gpu in member.gpus if self.gpus >> gpu & 1),
            nics=tuple(nic for nic in member.nics if _nic_mask(self.machine, (nic,)) & self.nics),
            cpus=min(member.cpus, self.microcpus / 1_000_000),
            memory_GiB=min(member.memory_GiB, self.memory_KiB / (1 << 20)),
        )


def _without(member: MemberPlacement, held: MemberPlacement | None) -> MemberPlacement:
    """What a member still lacks."""
    if held is None:
        return member
    return replace(
        member,
        gpus=tuple(gpu for gpu in member.gpus if gpu not in held.gpus),
        nics=tuple(nic for nic in member.nics if nic not in held.nics),
        cpus=max(0.0, member.cpus - held.cpus),
        memory_GiB=max(0.0, member.memory_GiB - held.memory_GiB),
    )


def _nic_mask(machine: Machine, names: Sequence[str]) -> int:
    if not names:
        return 0
    bit_of_nic = {nic.name: bit for bit, nic in enumerate(machine.nics)}
    unknown = [name for name in names if name not in bit_of_nic]
    assert not unknown, f"no NICs {unknown} in machine {machine.name}"
    return mask_of(bit_of_nic[name] for name in names)


def _array(numbers: Sequence[int]) -> IntArray:
    return np.array(numbers, dtype=np.int64)
