"""Occupancy: the resources that each owner holds. The only mutable part of the topology.

`Occupancy.owners` says who holds what, member by member, and is the truth: `check` counts all else from it again. What
is free on each node is counted by its parts: `free_gpus`, `split_gpus` (in MIG mode or shared) and `host_resources`;
`holders` knows the owners on each node, `spares` the nodes that are held back. Every touched node goes into a change
log, which `indexes` follow: what searches cache, built again whenever the log does not reach back far enough.

An owner is a job id, a claim, or "site:<job>" for what the cluster file says is taken by others.
"""

from collections.abc import Collection, Hashable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from gantree.model.placements import GpuChange, MemberPlacement
from gantree.topology.fabric.conditions import broken_nics, sound_nodes
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.hardware.masks import gpus_of
from gantree.topology.hardware.numa import NumaUse
from gantree.topology.occupancy.change_log import ChangeLog, Index
from gantree.topology.occupancy.gpus.free_gpus import FreeGpus
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.gpus.split_gpus import SplitGpus
from gantree.topology.occupancy.holders import Holders
from gantree.topology.occupancy.host_resources import UNCOUNTED, HostResources
from gantree.topology.occupancy.member_parts import take_free
from gantree.topology.occupancy.node_room import (
    NodeRoom,
    first_problem,
    mask_of_gpus,
    memory_KiB,
    microcpus,
)
from gantree.topology.occupancy.recount import check_books
from gantree.topology.occupancy.site import site_members, site_states
from gantree.topology.occupancy.spares import Spares

__all__ = ["UNCOUNTED", "Index", "Occupancy", "memory_KiB", "microcpus"]


class Occupancy:
    """What of a fabric is taken. Read the arrays, never write them.

    free_mask_of_node[node] has a bit per GPU that one member could have whole: nobody holds anything of it, and it is
    not in MIG mode, or may be switched back. parts_of_node has an entry for each node with GPUs in MIG mode or shared.
    held_back_node is the mask of the nodes that are kept free as spares; take may use them. host counts all beside
    GPUs; the arrays of it that searches read are attributes here, too. A node that is not usable, and a broken NIC,
    stays with its holder.

    The class is large because it is the one interface to all its parts: a change of one is a change of others.
    """

    def __init__(self, fabric: Fabric, *, empty: bool = False) -> None:
        """A fabric with the site's own allocations taken, or without them where empty.

        Nodes that the site says are broken (health 0) are not usable, nor are such NICs. Raises BadInput where an
        allocation contradicts the machine it is on or another allocation, and for MIG instances that cannot be.
        """
        self.fabric = fabric
        self.usable_node: BoolArray = sound_nodes(fabric)
        self.owners: dict[str, tuple[MemberPlacement, ...]] = {}
        self.holders_on_node = Holders()
        self.free = FreeGpus(fabric)
        self.split = SplitGpus(fabric, self.free, self.holders_on_node)
        self.host = HostResources(fabric)
        self.spares = Spares.of(fabric, self.usable_node)
        self.log = ChangeLog(len(fabric.nodes))
        self.indexes: dict[Hashable, Index] = {}
        self._emptied: Occupancy | None = None
        self._show_arrays()
        self.host.set_broken_nics(broken_nics(fabric))
        for node, states in site_states(fabric).items():
            self.split.set(node, states)
        if not empty:
            for owner, member in site_members(self):
                self.hold(owner, (member,))

    def _show_arrays(self) -> None:
        """Name the arrays of the parts here: a search reads them often, and they are only changed in place."""
        self.free_mask_of_node: Sequence[int] = self.free.mask_of_node
        self.free_gpus_of_node: IntArray = self.free.of_tier[-1]
        self.free_nics_of_node: IntArray = self.host.nics_of_node
        self.free_microcpus_of_node: IntArray = self.host.microcpus_of_node
        self.free_memory_KiB_of_node: IntArray = self.host.memory_KiB_of_node
        self.devices = self.host.devices
        self.parts_of_node = self.split.states_of_node
        self.held_back_node: BoolArray = self.spares.held_back_node

    # ----- reading

    @property
    def version(self) -> int:
        """Grows with every touched node."""
        return self.log.version

    def free_gpus_in_domain(self, tier: int) -> IntArray:
        """GPUs that a member could have whole, by domain of a tier, usable or not. Read it, never write it."""
        return self.free.of_tier[tier]

    def state_of_node(self, node: int) -> NodeState:
        """The GPUs of a node, by index, as parts of them can be held now."""
        return self.split.state(node)

    def numa_use(self, node: int) -> NumaUse:
        """What is held on the NUMA nodes of a node, by index."""
        return self.host.numa_use(node)

    def free_gpus(self, node: str) -> tuple[int, ...]:
        """GPUs that nobody holds on a node, rising, whether or not the node is usable."""
        return gpus_of(self.free.mask_of_node[self._index(node)])

    def free_nics(self, node: str) -> tuple[str, ...]:
        """NICs that are whole or worn and that nobody holds on a node, in the machine's order."""
        return self.host.sound_nics(self._index(node))

    def holder_of_gpu(self, node: str, gpu: int) -> str | None:
        """Who holds a GPU, or was the first of those who hold parts of it now."""
        for owner in self.holders(node):
            for held in self.owners[owner]:
                if held.node == node and (gpu in held.gpus or gpu in held.parts):
                    return owner
        return None

    def holders(self, node: str) -> Collection[str]:
        """Who holds anything on a node."""
        return self.holders_on_node.get(self._index(node), ())

    def usable(self, node: str) -> bool:
        """Whether anything may be placed on a node."""
        return bool(self.usable_node[self._index(node)])

    def missing(self, members: Sequence[MemberPlacement]) -> str:
        """What of these, taken together, is not there or not free, in words; empty if all of it is."""
        return first_problem(members, self.fabric.index_of_node, self.room_of_node)

    def room_of_node(self, node: int, *, recut: bool | None = None) -> NodeRoom:
        """What is free on a node, by index, to be used up; recut says whether GPUs may be cut, None: as it is."""
        state, host = self.split.state(node), self.host
        return NodeRoom(
            host.book_of_node[node],
            state if recut is None else replace(state, recut=recut),
            host.nic_mask_of_node[node],
            host.microcpus_view[node],
            host.memory_KiB_view[node],
            host.devices.of_node(node),
            host.numa_use(node),
        )

    def check(self) -> None:
        """Count everything again from the owners; AssertionError where the arrays say otherwise."""
        check_books(self, Occupancy(self.fabric, empty=True))
        for index in self.indexes.values():
            index.check(self)

    # ----- changing

    def mark(self, node: str, usable: bool, *, same_spares: bool = False) -> None:
        """Say whether a node may be used from now on; what it holds stays held. same_spares: it may be one still."""
        index = self._index(node)
        self.usable_node[index] = usable
        if not same_spares:
            self._touch(self.spares.set_usable(index, usable))
        self._touch((index,))

    def take(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Give an owner all of these; AssertionError, and nothing taken, if any of it is not free."""
        if self._take_whole(members):
            self.enter(owner, members)
            return
        assert not (missing := self.missing(members)), f"{owner}: {missing}"
        self.hold(owner, members)

    def take_free(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Give an owner what of these is free now and not yet its own: all that it is to have on these nodes.

        Of a GPU of which it lacks something while others hold parts of it, it keeps the rest, until the next call.
        """
        take_free(self, owner, members)

    def give_back(self, owner: str) -> None:
        """Free all that an owner holds; nothing happens if it holds nothing."""
        for member in self.owners.pop(owner, ()):
            self._leave(owner, member)

    def undo(self, changes: Sequence[GpuChange]) -> None:
        """Take back changes of GPUs that were counted and not made; instances that somebody holds stay."""
        for change in changes:
            node = self._index(change.node)
            self.split.undo(node, change)
            self._note_change(node)

    def drop(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Free some of the members that an owner holds, each as it holds it."""
        if members:
            self.owners[owner] = tuple(m for m in self.owners[owner] if m not in members)
        for member in members:
            self._leave(owner, member)

    def exchange(self, owner: str, held: MemberPlacement, other: MemberPlacement) -> None:
        """Let an owner hold another member on the same node instead of one that it holds."""
        node = self._index(held.node)
        for member, sign in ((held, +1), (other, -1)):
            self.count(node, member, sign)
            self._note_change(node)
        self.owners[owner] = tuple(other if one is held else one for one in self.owners[owner])

    # ----- copies

    def copy(self, fabric: Fabric | None = None) -> "Occupancy":
        """The same state, to be changed on its own, without indexes; fabric: the same one, stated anew."""
        twin = copy(self)
        twin.fabric, twin._emptied = (fabric, None) if fabric else (self.fabric, self._emptied)
        twin.usable_node = self.usable_node.copy()
        twin.owners = self.owners.copy()
        twin.holders_on_node = self.holders_on_node.copy()
        twin.free = self.free.copy()
        twin.split = self.split.copy(twin.fabric, twin.free, twin.holders_on_node)
        twin.host = self.host.copy()
        twin.spares = self.spares.copy()
        twin.log = ChangeLog(len(self.fabric.nodes))
        twin.indexes = {}
        twin._show_arrays()
        return twin

    def emptied(self) -> "Occupancy":
        """The same fabric with nothing taken, every node usable, every NIC whole. Shared and kept: do not change it."""
        if self._emptied is None:
            self._emptied = Occupancy(self.fabric, empty=True)
            for node in np.flatnonzero(~self._emptied.usable_node).tolist():
                self._emptied.mark(self.fabric.nodes[node].name, usable=True)
            self._emptied.host.set_broken_nics({})
            self._emptied._emptied = self._emptied
        return self._emptied

    # ----- steps of a change, each of which leaves the books open until `enter`

    def hold(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Give an owner members that are known to be free, whoever cuts GPUs there."""
        for member in members:
            self.count(self._index(member.node), member, -1)
        self.enter(owner, members)

    def enter(self, owner: str, members: Sequence[MemberPlacement]) -> None:
        """Name the owner of members that are counted already."""
        index_of_node, touch = self.fabric.index_of_node, self.log.touch
        enter, settles = self.holders_on_node.enter, self.spares.most_of_tier
        for member in members:
            index = index_of_node[member.node]
            enter(index, owner)
            if settles or index in self.parts_of_node:
                self._settle(index)
            touch(index)
        self.log.trim()
        self.owners[owner] = (*self.owners.get(owner, ()), *members)

    def count(self, node: int, member: MemberPlacement, sign: int) -> None:
        """Count what a member takes (-1) or gives back (+1)."""
        gpus = member.gpus
        if member.mig or member.share or (gpus and node in self.parts_of_node):
            self.split.add(node, member, sign)
        elif gpus:
            self.free.add(node, gpus, sign)
        self.host.add(node, member, sign)

    def _take_whole(self, members: Sequence[MemberPlacement]) -> bool:
        """Take members of whole GPUs on nodes without split GPUs, as most are; False, and nothing taken, otherwise."""
        index_of_node = self.fabric.index_of_node
        for position, member in enumerate(members):
            node = index_of_node.get(member.node)
            if node is None or not self._whole_is_free(node, member):
                for taken in members[:position]:
                    self.count(index_of_node[taken.node], taken, +1)
                return False
            self.count(node, member, -1)
        return True

    def _whole_is_free(self, node: int, member: MemberPlacement) -> bool:
        """Whether a member has no part of a GPU, no GPU of its node is split, and all of it is free."""
        if member.mig or member.share is not None or node in self.parts_of_node:
            return False
        if mask_of_gpus(member.gpus) & ~self.free.mask_of_node[node]:
            return False
        return self.host.has(node, member)

    def _leave(self, owner: str, member: MemberPlacement) -> None:
        node = self.fabric.index_of_node[member.node]
        self.holders_on_node.leave(node, owner)
        self.count(node, member, +1)
        self._note_change(node)

    def _note_change(self, node: int) -> None:
        if node in self.parts_of_node or self.spares.most_of_tier:
            self._settle(node)
        self.log.touch(node)
        self.log.trim()

    def _settle(self, node: int) -> None:
        """Bring split GPUs and spares up to date after the holders on a node have changed."""
        if node in self.parts_of_node:
            self.split.refresh(node)
        if self.spares.most_of_tier:
            self._touch(self.spares.set_empty(node, not self.holders_on_node.get(node)))

    def _touch(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self.log.touch(node)
        self.log.trim()

    def _index(self, node: str) -> int:
        index = self.fabric.index_of_node.get(node)
        assert index is not None, f"no node {node} in this fabric"
        return index
