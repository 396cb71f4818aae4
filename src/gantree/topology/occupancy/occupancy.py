"""Who holds what: the only thing in the topology that changes.

Arrays beside the fabric say what is free on each node; `owners` says who holds the rest, member by member, and is
the truth: `check` recomputes the arrays from it. CPUs and memory are kept as whole numbers (millionths, KiB), so
taking and giving back never drifts. Every touched node goes into a change log that `indexes` follow: what searches
keep to be fast, built again from nothing wherever the log is too short.
What most nodes lack is kept sparsely, by node: GPUs cut by MIG or shared (`parts`), amounts on NUMA nodes (`numa`),
broken NICs. Members of whole GPUs on other nodes take a short way (`_take_whole`), which is most of what happens.
An owner is a job id, a claim, or "site:<job>" for what the cluster file says is taken by others.
"""

from collections.abc import Collection, Hashable, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.conditions import broken_nics, sound_nodes
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.hardware.masks import gpus_of
from gantree.topology.hardware.numa import NumaUse
from gantree.topology.occupancy.change_log import ChangeLog, Index
from gantree.topology.occupancy.free_devices import FreeDevices
from gantree.topology.occupancy.holders import Holders
from gantree.topology.occupancy.member_parts import (
    by_member,
    grown,
    is_nothing,
    may_gain,
    part_of,
    without,
)  # fmt: skip
from gantree.topology.occupancy.node_room import (
    MachineBook,
    NodeRoom,
    first_problem,
    mask_of_gpus,
    memory_KiB,
    microcpus,
)
from gantree.topology.occupancy.partial_gpus import held_by, rests_held, rests_of, those_in_parts
from gantree.topology.occupancy.parts import (
    GpuStates,
    NodeState,
    given_back,
    over,
    rules_of,
    states_of_mask,
    taken,
)  # fmt: skip
from gantree.topology.occupancy.recount import check_books, hold_again
from gantree.topology.occupancy.site import site_members, site_states
from gantree.topology.occupancy.spares import Spares

__all__ = ["UNCOUNTED", "Index", "Occupancy", "memory_KiB", "microcpus"]

UNCOUNTED = 1 << 40
"""Free amount of a resource that the site did not count; no member asks for as much."""


class Occupancy:
    """What of a fabric is taken. Read the arrays, never write them.

    free_mask_of_node[node] has a bit per GPU that one member could have whole: nobody holds anything of it, and it is
    not in MIG mode, or may be switched back. free_nic_mask_of_node[node] has one per NIC of the machine that nobody
    holds; the arrays beside them count them, of the NICs only those that are not broken. broken_nic_mask_of_node has
    an entry for each node with NICs of health 0, parts_of_node one for each node with GPUs that are in MIG mode or
    shared, numa_of_node one for each node on whose NUMA nodes something was ever held. held_back_node is the mask of
    the nodes kept free as spares; take may use them. devices are what is neither GPU nor NIC. A node not usable,
    and a broken NIC, stays with its holder.
    """

    def __init__(self, fabric: Fabric, *, empty: bool = False) -> None:
        """A fabric with the site's own allocations taken, or without them where empty.

        Nodes that the site says are broken (health 0) are not usable, nor are such NICs. Raises BadInput where an
        allocation contradicts the machine it is on or another allocation, and for MIG instances that cannot be.
        """
        self.fabric = fabric
        machines = [fabric.machine_of_node(node) for node in range(len(fabric.nodes))]
        self.free_mask_of_node: list[int] = [(1 << machine.gpus) - 1 for machine in machines]
        self.free_nic_mask_of_node: list[int] = [(1 << len(m.nics)) - 1 for m in machines]
        self._free_gpus: IntArray = np.concatenate(
            [
                np.add.reduceat(fabric.gpus_of_node, first[:-1])
                for first in fabric.first_node_of_domain
            ]
        )
        self.free_nics_of_node: IntArray = _array(
            [len(m.nics) if m.nics_counted else UNCOUNTED for m in machines]
        )
        self.broken_nic_mask_of_node: dict[int, int] = {}
        self.free_microcpus_of_node: IntArray = _array(
            [UNCOUNTED if m.cpus is None else microcpus(m.cpus) for m in machines]
        )
        self.free_memory_KiB_of_node: IntArray = _array(
            [UNCOUNTED if m.memory_GiB is None else memory_KiB(m.memory_GiB) for m in machines]
        )
        self.devices = FreeDevices.of(fabric)
        self.usable_node: BoolArray = sound_nodes(fabric)
        self.parts_of_node: dict[int, GpuStates] = {}
        self.numa_of_node: dict[int, NumaUse] = {}
        self.owners: dict[str, tuple[MemberPlacement, ...]] = {}
        self._holders_on_node = Holders()
        self.indexes: dict[Hashable, Index] = {}
        self._emptied: Occupancy | None = None
        self._log = ChangeLog(len(fabric.nodes))
        self._paths: list[list[int]] = fabric.flat_path_of_node.tolist()
        books = [MachineBook(machine) for machine in fabric.machines]
        self._book_of_node: list[MachineBook] = [
            books[number] for number in fabric.machine_index_of_node.tolist()
        ]
        self._hold_views()
        self._spares = Spares.of(fabric, self.usable_node)
        self.held_back_node: BoolArray = self._spares.any_of_node()
        self._break_nics(broken_nics(fabric))
        for node, states in site_states(fabric).items():
            self.parts_of_node[node] = states
            self._follow_parts(node)
        if not empty:
            for owner, member in site_members(self):
                self._hold(owner, (member,))

    # ----- reading

    @property
    def version(self) -> int:
        """Grows with every touched node."""
        return self._log.version

    def changed_since(self, version: int) -> Sequence[int] | None:
        """Nodes touched since a version, each once, in node order; None where the log no longer reaches back."""
        return self._log.since(version)

    def has_touched_only(self, node: int, version: int) -> bool:
        """Whether a node, by index, is the only one that was touched since a version; False where nobody knows."""
        return self._log.has_only(node, version)

    def free_gpus_in_domain(self, tier: int) -> IntArray:
        """GPUs that a member could have whole, by domain of a tier, usable or not. Read it, never write it."""
        return self._free_gpus_of_tier[tier]

    def state_of_node(self, node: int) -> NodeState:
        """The GPUs of a node, by index, as parts of them can be held now."""
        machine = self.fabric.machine_of_node(node)
        rules = rules_of(machine, self.fabric.nodes[node])
        states = self.parts_of_node.get(node)
        if states is None:
            states = states_of_mask(machine.gpus, self.free_mask_of_node[node])
        return NodeState(rules, states, self._recut(node))

    def numa_use(self, node: int) -> NumaUse:
        """What is held on the NUMA nodes of a node, by index."""
        return self.numa_of_node.get(node) or self._book_of_node[node].no_use

    def free_gpus(self, node: str) -> tuple[int, ...]:
        """GPUs that nobody holds on a node, rising, whether or not the node is usable."""
        return gpus_of(self.free_mask_of_node[self._index(node)])

    def free_nics(self, node: str) -> tuple[str, ...]:
        """NICs that are whole or worn and that nobody holds on a node, in the machine's order."""
        return self.free_nics_of_index(self._index(node))

    def free_nics_of_index(self, node: int) -> tuple[str, ...]:
        """As `free_nics`, by node index."""
        return self._book_of_node[node].nic_masks.names(self.free_nic_mask_of_index(node))

    def free_nic_mask_of_index(self, node: int) -> int:
        """As `free_nics`, by node index, as a mask in the machine's order."""
        return self.free_nic_mask_of_node[node] & ~self.broken_nic_mask_of_node.get(node, 0)

    def holder_of_gpu(self, node: str, gpu: int) -> str | None:
        """Who holds a GPU, or was the first of those who hold parts of it now."""
        for owner in self._holders_on_node.get(self._index(node), ()):
            for held in self.owners[owner]:
                if held.node == node and (gpu in held.gpus or gpu in held.parts):
                    return owner
        return None

    def holders(self, node: str) -> Collection[str]:
        """Who holds anything on a node."""
        return self._holders_on_node.get(self._index(node), ())

    def usable(self, node: str) -> bool:
        """Whether anything may be placed on a node."""
        return bool(self.usable_node[self._index(node)])

    @property
    def keeps_spares(self) -> bool:
        """Whether nodes are held back for those that fail, in a domain of any tier."""
        return bool(self._spares.most_of_tier)

    def may_be_spare(self, node: int) -> bool:
        """Whether a node, by index, may be held back while nobody holds anything of it."""
        return bool(self._spares.usable_node[node])

    # ----- changing

    def mark(self, node: str, usable: bool, *, same_spares: bool = False) -> None:
        """Say whether a node may be used from now on; what it holds stays held. same_spares: it may be one still."""
        index = self._index(node)
        self.usable_node[index] = usable
        if not same_spares:
            self._follow_spares(self._spares.marked(index, usable))
        self._touch(index)

    def take(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Give an owner all of these; AssertionError, and nothing taken, if any of it is not free."""
        if self._take_whole(members):
            self._enter(owner, members)
            return
        assert not (missing := self.missing(members)), f"{owner}: {missing}"
        self._hold(owner, members)

    def missing(self, members: Sequence[MemberPlacement]) -> str:
        """What of these, taken together, is not there or not free, in words; empty if all of it is."""
        return first_problem(members, self.fabric.index_of_node, self.room_of_node)

    def take_free(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Give an owner what of these is free now and not yet its own: all that it is to have on these nodes.

        Of a GPU of which it lacks something while others hold parts of it, it keeps the rest, until the next call.
        """
        if in_parts := those_in_parts(self, members):
            self.drop(owner, rests_held(self, owner, in_parts))
        uncut = {i: self.state_of_node(i).gpus for i in (self._index(m.node) for m in in_parts)}
        held_of = by_member(self.owners.get(owner, ()))
        for member in members:
            node = self._index(member.node)
            held = held_of.get((member.role, member.rank, member.node))
            has_more = self._cpus_view[node] > 0, self._memory_view[node] > 0
            if held is not None and not may_gain(member, held, *has_more):
                continue
            part = part_of(self, node, self._book_of_node[node], without(member, held))
            if held is None:
                self._hold(owner, (part,))
            elif not is_nothing(part):
                self._grow(owner, held, part)
        for member in in_parts:
            for rest in rests_of(self, without(member, held_by(self, owner, member))):
                self._hold(owner, (rest,))
        for node, states in uncut.items():
            self.parts_of_node[node] = over(states, self.state_of_node(node).gpus)
            self._follow_parts(node)

    def give_back(self, owner: str) -> None:
        """Free all that an owner holds; nothing happens if it holds nothing."""
        for member in self.owners.pop(owner, ()):
            self._leave(owner, member)

    def drop(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Free some of the members that an owner holds, each as it holds it."""
        if members:
            self.owners[owner] = tuple(m for m in self.owners[owner] if m not in members)
        for member in members:
            self._leave(owner, member)

    def copy(self, fabric: Fabric | None = None) -> "Occupancy":
        """The same state, to be changed on its own, without indexes; fabric: the same one with other labels."""
        twin = copy(self)
        twin.fabric, twin._emptied = (fabric, None) if fabric else (self.fabric, self._emptied)
        twin.free_mask_of_node = self.free_mask_of_node.copy()
        twin.free_nic_mask_of_node = self.free_nic_mask_of_node.copy()
        twin._free_gpus = self._free_gpus.copy()
        twin.free_nics_of_node = self.free_nics_of_node.copy()
        twin.broken_nic_mask_of_node = self.broken_nic_mask_of_node.copy()
        twin.free_microcpus_of_node = self.free_microcpus_of_node.copy()
        twin.free_memory_KiB_of_node = self.free_memory_KiB_of_node.copy()
        twin.devices = self.devices.copy()
        twin.usable_node = self.usable_node.copy()
        twin.parts_of_node = self.parts_of_node.copy()
        twin.numa_of_node = self.numa_of_node.copy()
        twin.owners = self.owners.copy()
        twin._holders_on_node = self._holders_on_node.copy()
        twin.indexes = {}
        twin._log = ChangeLog(len(self.fabric.nodes))
        twin._hold_views()
        twin._spares = self._spares.copy()
        twin.held_back_node = self.held_back_node.copy()
        return twin

    def emptied(self) -> "Occupancy":
        """The same fabric with nothing taken, every node usable, every NIC whole. Shared and kept: do not change it."""
        if self._emptied is None:
            self._emptied = Occupancy(self.fabric, empty=True)
            for node in np.flatnonzero(~self._emptied.usable_node).tolist():
                self._emptied.mark(self.fabric.nodes[node].name, usable=True)
            self._emptied._break_nics({})
            self._emptied._emptied = self._emptied
        return self._emptied

    def check(self) -> None:
        """Recompute everything from the owners; AssertionError where the arrays say otherwise."""
        check_books(self)
        for index in self.indexes.values():
            index.check(self)

    def recounted(self) -> "Occupancy":
        """A fresh count of what the owners hold, without idle instances; AssertionError where two hold the same."""
        fresh = Occupancy(self.fabric, empty=True)
        fresh._break_nics(self.broken_nic_mask_of_node)
        hold_again(fresh, self.owners)
        return fresh

    def room_of_node(self, node: int, *, recut: bool | None = None) -> NodeRoom:
        """What is free on a node, by index, to be used up; recut says whether GPUs may be cut, None: as it is."""
        state = self.state_of_node(node)
        return NodeRoom(
            self._book_of_node[node],
            state if recut is None else replace(state, recut=recut),
            self.free_nic_mask_of_node[node],
            self._cpus_view[node],
            self._memory_view[node],
            self.devices.of_node(node),
            self.numa_use(node),
        )

    # ----- how

    def _index(self, node: str) -> int:
        index = self.fabric.index_of_node.get(node)
        assert index is not None, f"no node {node} in this fabric"
        return index

    def _hold_views(self) -> None:
        """Name the parts of the array of free GPUs; reading one number of a view is quicker than of an array."""
        first = self.fabric.first_of_tier
        self._free_gpus_of_tier = tuple(self._free_gpus[a:b] for a, b in pairwise(first))
        self.free_gpus_of_node: IntArray = self._free_gpus_of_tier[-1]
        self._gpus_view = self._free_gpus.data
        self._nics_view = self.free_nics_of_node.data
        self._cpus_view = self.free_microcpus_of_node.data
        self._memory_view = self.free_memory_KiB_of_node.data

    def _break_nics(self, broken_nic_mask_of_node: dict[int, int]) -> None:
        """Count exactly these NICs as broken; of an occupancy in which nobody holds any."""
        for node, mask in self.broken_nic_mask_of_node.items():
            self.free_nics_of_node[node] += mask.bit_count()
        self.broken_nic_mask_of_node = broken_nic_mask_of_node.copy()
        for node, mask in self.broken_nic_mask_of_node.items():
            self.free_nics_of_node[node] -= mask.bit_count()

    def _recut(self, node: int) -> bool:
        """Whether instances and MIG modes of a node may be changed now."""
        by = self.fabric.nodes[node].mig_by
        return by == "gpu" or (by == "node" and not self._holders_on_node.get(node))

    # ----- the short way: whole GPUs

    def _take_whole(self, members: Sequence[MemberPlacement]) -> bool:
        """Take members of whole GPUs on nodes where nothing is cut or shared; False, and nothing taken, else."""
        index_of_node = self.fabric.index_of_node
        for position, member in enumerate(members):
            node = index_of_node.get(member.node)
            if node is None or not self._whole_is_free(node, member):
                for taken in members[:position]:
                    self._add_whole(index_of_node[taken.node], taken, +1)
                return False
            self._add_whole(node, member, -1)
        return True

    def _whole_is_free(self, node: int, member: MemberPlacement) -> bool:
        """Whether a member has no part of a GPU, nothing on its node is cut or shared, and all of it is free."""
        if member.mig or member.share is not None or node in self.parts_of_node:
            return False
        if mask_of_gpus(member.gpus) & ~self.free_mask_of_node[node]:
            return False
        if (
            member.nics
            and self._book_of_node[node].nic_masks[member.nics] & ~self.free_nic_mask_of_node[node]
        ):
            return False
        if (member.cpus and microcpus(member.cpus) > self._cpus_view[node]) or (
            member.memory_GiB and memory_KiB(member.memory_GiB) > self._memory_view[node]
        ):
            return False
        if not self.devices.has(node, member.devices):
            return False
        return not (member.numa and self._numa_step(node, member, +1)[0])

    def _numa_step(self, node: int, member: MemberPlacement, sign: int) -> tuple[str, NumaUse]:
        """As `NumaSteps`: what follows where a member takes (+1) or gives back (-1) what it holds on NUMA nodes."""
        return self._book_of_node[node].numa_steps[self.numa_use(node), member.numa, sign]

    def _add_whole(self, node: int, member: MemberPlacement, sign: int) -> None:
        """Count what a member takes (-1) or gives back (+1), but for parts of GPUs."""
        if member.gpus:
            self.free_mask_of_node[node] ^= mask_of_gpus(member.gpus)
            self._count_gpus(node, sign * len(member.gpus))
        self._add_rest(node, member, sign)

    def _add_rest(self, node: int, member: MemberPlacement, sign: int) -> None:
        """Count NICs, CPUs, memory, other devices and NUMA nodes."""
        for name, count in member.devices:
            self.devices.add(name, node, sign * count)
        if member.cpus:
            self._cpus_view[node] += sign * microcpus(member.cpus)
        if member.memory_GiB:
            self._memory_view[node] += sign * memory_KiB(member.memory_GiB)
        if member.nics:
            held = self._book_of_node[node].nic_masks[member.nics]
            counted = held & ~self.broken_nic_mask_of_node.get(node, 0)
            self.free_nic_mask_of_node[node] ^= held
            self._nics_view[node] += sign * counted.bit_count()
        if member.numa:
            self.numa_of_node[node] = self._numa_step(node, member, -sign)[1]

    def _count_gpus(self, node: int, more: int) -> None:
        free = self._gpus_view
        for domain in self._paths[node]:
            free[domain] += more

    # ----- the whole way

    def _hold(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        for member in members:
            self._add_all(self._index(member.node), member, -1)
        self._enter(owner, members)

    def _enter(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Name the owner of what was counted already."""
        index_of_node = self.fabric.index_of_node
        enter, touch = self._holders_on_node.enter, self._log.touch
        for member in members:
            index = index_of_node[member.node]
            enter(index, owner)
            if index in self.parts_of_node or self._spares.most_of_tier:
                self._settle(index)
            touch(index)
        self._log.trim()
        self.owners[owner] = (*self.owners.get(owner, ()), *members)

    def _add(self, node: int, member: MemberPlacement, sign: int) -> None:
        self._add_all(node, member, sign)
        if node in self.parts_of_node or self._spares.most_of_tier:
            self._settle(node)
        self._touch(node)

    def _add_all(self, node: int, member: MemberPlacement, sign: int) -> None:
        if not (member.mig or member.share or node in self.parts_of_node):
            self._add_whole(node, member, sign)
            return
        self._add_rest(node, member, sign)
        if member.gpus or member.mig or member.share:
            self._add_parts(node, member, sign)

    def _add_parts(self, node: int, member: MemberPlacement, sign: int) -> None:
        """Count GPUs and parts of GPUs of a node where some are cut or shared; whether that may be was asked before."""
        state = self.state_of_node(node)
        self.parts_of_node[node] = (taken if sign < 0 else given_back)(state, member)
        self._follow_parts(node)

    def _follow_parts(self, node: int) -> None:
        """Say which GPUs are free where some are cut or shared, and forget states that are plain or whole again."""
        state = self.state_of_node(node)
        mask = state.free_mask()
        self._count_gpus(node, mask.bit_count() - self.free_mask_of_node[node].bit_count())
        self.free_mask_of_node[node] = mask
        if not any(one.mig or one.tenants or one.kept or one.cut for one in state.gpus):
            del self.parts_of_node[node]

    def _settle(self, node: int) -> None:
        """What follows when the holders on a node have changed."""
        if node in self.parts_of_node:
            self._follow_parts(node)
        if self._spares.most_of_tier:
            self._follow_spares(self._spares.emptied(node, not self._holders_on_node.get(node)))

    def _follow_spares(self, ranges: Sequence[range]) -> None:
        """Say which nodes are held back where the spares of some ranges of nodes were chosen anew."""
        for nodes in ranges:
            here = slice(nodes.start, nodes.stop)
            held = self._spares.any_of_node(here)
            others = nodes.start + np.flatnonzero(held != self.held_back_node[here])
            self.held_back_node[here] = held
            for other in others.tolist():
                self._touch(other)

    def _leave(self, owner: str, member: MemberPlacement) -> None:
        index = self.fabric.index_of_node[member.node]
        self._holders_on_node.leave(index, owner)
        self._add(index, member, +1)

    def _grow(self, owner: str, held: MemberPlacement, part: MemberPlacement) -> None:
        whole = grown(held, part)
        index = self._index(held.node)
        self._add(index, held, +1)
        self._add(index, whole, -1)
        self.owners[owner] = tuple(whole if one is held else one for one in self.owners[owner])

    def _touch(self, node: int) -> None:
        self._log.touch(node)
        self._log.trim()


def _array(numbers: Sequence[int]) -> IntArray:
    return np.array(numbers, dtype=np.int64)
