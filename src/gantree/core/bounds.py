"""Who could ever find room if all gave way that might: bounds for a whole class of lines, from counts of GPUs alone.

A class is a queue and a priority: all its lines might have the same gangs stopped, but for those that give way to some
of them only, and these count for all. The GPUs of all such gangs are added to the free ones, node by node, and gangs of
a signature may fit where some domain of their tier has slots enough. So the bound is never too low, whatever else the
gangs may want; it is asked of thousands of lines where a plan, or even a search, could be asked of some.

    free                 and all that claims, estimated starts and those that leave hold
    elastic gangs        whole: they might shrink
    across queues        gangs of lower priority that are not owed their place
    in the queue         gangs of lower priority, owed or not
    what the queue lent  all gangs of others that borrow, if it might take anything back
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from gantree.core.ledger import BOOKING, CLAIM, Ledger
from gantree.core.state import JobState
from gantree.core.wakes import Need
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric import Fabric, IntArray

Class = tuple[int, int]
"""(queue, priority)"""
MANY = 1000
"""Places that are remembered before those that are gone are forgotten."""


class Bounds:
    """The bounds of one moment; filled when asked. stay are the gangs that might be stopped, by priority."""

    def __init__(
        self, ledger: Ledger, stay: Sequence[JobState], kept: Iterable[str], places: "Places"
    ) -> None:
        self._ledger, self._places = ledger, places
        self._rules = ledger.policy.preemption
        kept = frozenset(kept)
        self._stay = [state for state in stay if state.job not in kept]
        self._priorities = [state.priority for state in self._stay]
        self._in_queue: dict[str, list[JobState]] = {}
        self._not_owed: list[JobState] = []
        for state in self._stay:
            owed = ledger.accounts.is_owed(state)
            if owed or not self._rules.across:
                self._in_queue.setdefault(state.spec.queue, []).append(state)
            if not owed or state.at_home:
                self._not_owed.append(state)
        self._not_owed_priorities = [state.priority for state in self._not_owed]
        self._free: IntArray | None = None
        self._of_others: dict[int, IntArray] = {}
        self._room: dict[tuple[int, tuple[str, ...]], _Room] = {}
        self._room_of_class: dict[Class, _Room] = {}

    def may_fit(self, head: JobState, need: Need) -> bool:
        """Whether a gang with a need might fit if all gave way that might for the class of a job that waits."""
        of_class = (head.queue, head.priority)
        room = self._room_of_class.get(of_class)
        if room is None:
            room = self._room_of_class[of_class] = self._of_class(head)
        return room.has(need)

    def _of_class(self, head: JobState) -> "_Room":
        """What might be free for a class; classes for which the same gangs might be stopped share it."""
        others = self._count(self._not_owed_priorities, head.priority) if self._rules.across else 0
        if self._ledger.accounts.may_reclaim(head.queue):
            others = len(self._not_owed)
        mine = self._in_queue.get(head.spec.queue, [])
        mine = mine[: self._count([state.priority for state in mine], head.priority)]
        key = (others, tuple(state.job for state in mine))
        if key not in self._room:
            free = self._beside(others)
            if mine:
                free = free + self._places.gpus_of_node(mine)
            self._room[key] = _Room(self._ledger, free)
        return self._room[key]

    def _count(self, priorities: Sequence[int], priority: int) -> int:
        """How many of some gangs, by priority, one of a priority might stop."""
        if self._rules.by == "none":
            return 0
        if self._rules.by == "order":
            return len(priorities)
        return (bisect_right if self._rules.gain else bisect_left)(priorities, priority)

    def _beside(self, others: int) -> IntArray:
        """GPUs by node that might be free if so many of those gangs were gone that are not owed their place."""
        if others not in self._of_others:
            gone = self._places.gpus_of_node(self._not_owed[:others])
            self._of_others[others] = self._in_any_case() + gone
        return self._of_others[others]

    def _in_any_case(self) -> IntArray:
        if self._free is None:
            ledger = self._ledger
            rooms = ledger.rooms()
            leave = [
                *ledger.leaving.values(),
                *(ledger.jobs[job] for job in ledger.accounts.elastic),
            ]
            held = [CLAIM + job for job in ledger.claims]
            held += [BOOKING + job for job, told in ledger.bookings.items() if not told.promised]
            members = [member for owner in held for member in rooms.owners.get(owner, ())]
            free = rooms.free_gpus_in_domain(rooms.fabric.node_tier)
            self._free = free + self._places.gpus_of_node(leave)
            np.add.at(self._free, *self._places.of_members(members))
        return self._free


class _Room:
    """GPUs that might be free by node, and the most slots of one domain, by GPUs of a member and tier."""

    def __init__(self, ledger: Ledger, free_gpus_of_node: IntArray) -> None:
        rooms = ledger.rooms()
        self._fabric = rooms.fabric
        most = np.minimum(free_gpus_of_node, self._fabric.gpus_of_node)
        self._free_gpus_of_node = np.where(rooms.usable_node, most, 0)
        self._most_slots: dict[tuple[int, int], int] = {}

    def has(self, need: Need) -> bool:
        gpus = 1 if need.shape is None else need.gpus
        if not gpus or (need.shape is not None and need.shape.part):
            return True
        key = (gpus, need.tier)
        if key not in self._most_slots:
            first = self._fabric.first_node_of_domain[need.tier]
            slots = np.add.reduceat(self._free_gpus_of_node // gpus, first[:-1])
            self._most_slots[key] = int(slots.max())
        return self._most_slots[key] >= need.slots


class Places:
    """Where gangs hold GPUs, as arrays; kept from one moment to the next."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._of_job: dict[str, tuple[int, IntArray, IntArray]] = {}

    def gpus_of_node(self, gangs: Sequence[JobState]) -> IntArray:
        """GPUs that these gangs hold, whole or in part, by node."""
        found = [self._of(state) for state in gangs]
        total = np.zeros(len(self.fabric.nodes), dtype=np.int64)
        if found:
            nodes = np.concatenate([nodes for _, nodes, _ in found])
            np.add.at(total, nodes, np.concatenate([gpus for _, _, gpus in found]))
        return total

    def forget(self, holding: Collection[str]) -> None:
        """Keep no more than of those who hold a place."""
        if len(self._of_job) > MANY + 2 * len(holding):
            self._of_job = {job: kept for job, kept in self._of_job.items() if job in holding}

    def of_members(self, members: Sequence[MemberPlacement]) -> tuple[IntArray, IntArray]:
        """The nodes of these members, and how many GPUs each has there, whole or in part."""
        index = self.fabric.index_of_node
        nodes = np.array([index[member.node] for member in members], dtype=np.int64)
        gpus = np.array([len(m.gpus) + len(m.parts) for m in members], dtype=np.int64)
        return nodes, gpus

    def _of(self, state: JobState) -> tuple[int, IntArray, IntArray]:
        known = self._of_job.get(state.job)
        if known is None or known[0] != state.attempt:
            assert state.placement is not None, f"{state.job} holds no place"
            known = (state.attempt, *self.of_members(state.placement.members))
            self._of_job[state.job] = known
        return known
