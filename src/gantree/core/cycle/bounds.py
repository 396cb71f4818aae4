"""Who could ever find room if all gave way that might: bounds for a whole class of lines, from counts of GPUs alone.

A class is a queue, a priority, and whether what is asked for is owed: all its lines might have the same gangs stopped.
Who gives way to some of them only counts for all. The GPUs of all such gangs are added to the free ones, node by node,
and gangs of a signature may fit where some domain of their tier has slots enough. So the bound is never too low,
whatever else the gangs may want; it is asked of thousands of lines where a plan, or even a search, is asked of some.

    free                 and all that claims and those that leave hold, and estimated starts that might give way
    elastic gangs        whole: they might shrink
    across queues        gangs of lower priority that are not owed their place
    in the queue         gangs of lower priority, owed or not
    what the queue lent  gangs that borrow it, if it might take anything back
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import BOOKING, CLAIM, JobState
from gantree.core.queue.fit_bound import Need
from gantree.core.queue.preemption_rules import borrowers
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric, IntArray

Class = tuple[int, int, bool]
"""(queue, priority, whether the queue may take back what it lent)"""
Count = Callable[[MemberPlacement], int]
Names = tuple[str, ...]
Leavers = tuple[int, Names, Names, Names, Names]
"""How many leave that are not owed their place, which of the queue, which that borrow of it, which estimated starts
give way, and which claims do not."""
MANY = 1000
"""Places that are remembered before those that are gone are forgotten."""


class Bounds:
    """The bounds of one moment; filled when asked.

    stay are the gangs that might be stopped, by priority; not_owed those of them that are not owed their place. Bounds
    stand while some of those leave who leave anyway: what these hold is counted when the bounds are made, with what is
    held for claims by then, which has more of it later.
    """

    def __init__(
        self,
        ledger: Ledger,
        stay: Sequence[JobState],
        not_owed: Iterable[JobState],
        places: "Places",
    ) -> None:
        self._ledger, self._places = ledger, places
        self._rules = ledger.policy.preemption
        self._stay = stay
        self._priorities = [state.priority for state in self._stay]
        self._in_queue: dict[str, list[JobState]] = {}
        self._not_owed: list[JobState] = []
        others = frozenset(state.job for state in not_owed) if self._rules.across else frozenset()
        for state in self._stay:
            if state.job in others:
                self._not_owed.append(state)
            else:
                self._in_queue.setdefault(state.spec.queue, []).append(state)
        self._may_leave = frozenset(state.job for state in self._stay)
        self._borrowers_of_queue: dict[int, Names] = {}
        self._not_owed_priorities = [state.priority for state in self._not_owed]
        self._estimates = [job for job, told in ledger.bookings.items() if not told.promised]
        self._of_claims: dict[Names, IntArray] = {}
        self._of_owners: dict[Names, IntArray] = {}
        self._of_others: dict[int, IntArray] = {}
        self._room: dict[Leavers, _Room] = {}
        self._room_of_class: dict[Class, _Room] = {}
        self._room_of_any: dict[tuple[int, bool], _Room] = {}
        holds = (*ledger.bookings, *ledger.claims)
        self._queues_with_holds = frozenset(ledger.jobs[job].spec.queue for job in holds)
        self._in_any_case = self._held_in_any_case()

    def may_fit(self, head: JobState, need: Need, *, due: bool) -> bool:
        """Whether a gang with a need might fit if all gave way that might for the class of a job that waits.

        due: whether it might take back what its queue has lent.
        """
        of_class = (head.queue, head.priority, due)
        room = self._room_of_class.get(of_class)
        if room is None:
            room = self._room_of_class[of_class] = self._of_class(head, due)
        return room.has(need)

    def may_fit_any(self, head: JobState, need: Need, *, due: bool) -> bool:
        """As `may_fit`, for all queues but those `are_apart`: what any of them has that might be stopped counts."""
        room = self._room_of_any.get((head.priority, due))
        if room is None:
            end = self._count(self._priorities, head.priority)
            gangs = list(self._stay[:end])
            if due:
                is_owed = self._ledger.accounts.is_owed
                gangs += [state for state in self._stay[end:] if not is_owed(state)]
            passed, claims = self._held_for_others(head, due)
            more = self._in_any_case + self._held([BOOKING + job for job in passed])
            more = more - self._claimed(claims) + self._places.gpus_of_node(gangs)
            room = self._room_of_any[head.priority, due] = _Room(self._ledger, more)
        return room.has(need)

    def are_apart(self, queue: str) -> bool:
        """Whether the jobs of a queue might have room that is held for one of them."""
        return queue in self._queues_with_holds

    def _held_for_others(self, head: JobState, due: bool) -> tuple[Names, Names]:
        """The estimated starts that might give way to the class of a job, and the claims that do not."""
        passed = tuple(job for job in self._estimates if due or self._may_pass(head, job))
        return passed, tuple(job for job in self._ledger.claims if not self._may_pass(head, job))

    def _of_class(self, head: JobState, due: bool) -> "_Room":
        """What might be free for a class; classes for which the same gangs might be stopped share it."""
        others = self._count(self._not_owed_priorities, head.priority) if self._rules.across else 0
        mine = self._in_queue.get(head.spec.queue, [])
        mine = mine[: self._count([state.priority for state in mine], head.priority)]
        lent = self._borrowers(head.queue) if due else ()
        passed, claims = self._held_for_others(head, due)
        own = tuple(state.job for state in mine)
        key = (others, own, lent, passed, claims)
        if key not in self._room:
            more = self._beside(others) + self._held([BOOKING + job for job in passed])
            more = more - self._claimed(claims)
            counted = {state.job for state in self._not_owed[:others]}
            jobs = (job for job in dict.fromkeys((*own, *lent)) if job not in counted)
            more = more + self._places.gpus_of_node([self._ledger.jobs[job] for job in jobs])
            self._room[key] = _Room(self._ledger, more)
        return self._room[key]

    def _borrowers(self, queue: int) -> Names:
        """The gangs that run on what a queue is guaranteed."""
        if queue not in self._borrowers_of_queue:
            found = borrowers(self._ledger, queue)
            self._borrowers_of_queue[queue] = tuple(job for job in found if job in self._may_leave)
        return self._borrowers_of_queue[queue]

    def _may_pass(self, head: JobState, job: str) -> bool:
        """Whether the class of a job might go before another that waits, for anything but what it is owed."""
        other, policy = self._ledger.jobs[job], self._ledger.policy
        if head.spec.queue == other.spec.queue:
            return True
        by_class = policy.order[0] == "priority" and not policy.age_per_day
        return not by_class or head.priority > other.priority

    def _count(self, priorities: Sequence[int], priority: int) -> int:
        """How many of some gangs, by priority, one of a priority might stop."""
        if self._rules.by == "none":
            return 0
        if self._rules.by == "order":
            return len(priorities)
        return (bisect_right if self._rules.gain else bisect_left)(priorities, priority)

    def _beside(self, others: int) -> IntArray:
        """GPUs by node beside the free ones if so many of those gangs were gone that are not owed their place."""
        if others not in self._of_others:
            gone = self._places.gpus_of_node(self._not_owed[:others])
            self._of_others[others] = self._in_any_case + gone
        return self._of_others[others]

    def _held_in_any_case(self) -> IntArray:
        """What those hold who leave or might shrink, and what is claimed."""
        ledger = self._ledger
        leave = [*ledger.leaving.values(), *(ledger.jobs[job] for job in ledger.accounts.elastic)]
        return self._places.gpus_of_node(leave) + self._held([CLAIM + job for job in ledger.claims])

    def _claimed(self, claims: Names) -> IntArray:
        """Whole GPUs of claims by node, held by now or yet to be: they stay claimed."""
        if claims not in self._of_claims:
            places = [self._ledger.claims[job].placement for job in claims]
            members = [member for place in places for member in place.members if member.gpus]
            self._of_claims[claims] = self._places.of_all(members, lambda each: len(each.gpus))
        return self._of_claims[claims]

    def _held(self, owners: Sequence[str]) -> IntArray:
        """What is held under some names for gangs that are not placed; 1 for a member without GPUs."""
        key = tuple(owners)
        if key not in self._of_owners:
            has = self._ledger.rooms().owners
            members = [member for owner in owners for member in has.get(owner, ())]
            self._of_owners[key] = self._places.of_all(members, _touched)
        return self._of_owners[key]


class _Room:
    """GPUs that might be free by node, and the most slots of one domain, by GPUs of a member and tier."""

    def __init__(self, ledger: Ledger, more_gpus_of_node: IntArray) -> None:
        rooms = ledger.rooms()
        self._fabric = rooms.fabric
        free_gpus_of_node = rooms.free_gpus_in_domain(self._fabric.node_tier)
        most = np.clip(free_gpus_of_node + more_gpus_of_node, 0, self._fabric.gpus_of_node)
        self._free_gpus_of_node = np.where(rooms.usable_node, most, 0)
        self._anything = bool((more_gpus_of_node > 0).any())
        self._most_slots: dict[tuple[int, int], int] = {}

    def has(self, need: Need) -> bool:
        """Whether there might be slots enough; never where nobody gives anything up."""
        gpus = 1 if need.shape is None else need.gpus
        if not self._anything:
            return False
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
        """GPUs that these gangs hold by node, as `_touched` counts them."""
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

    def of_all(self, members: Sequence[MemberPlacement], count: Count) -> IntArray:
        """What these members count together, by node."""
        total = np.zeros(len(self.fabric.nodes), dtype=np.int64)
        if members:
            np.add.at(total, *self._of_members(members, count))
        return total

    def _of_members(
        self, members: Sequence[MemberPlacement], count: Count
    ) -> tuple[IntArray, IntArray]:
        """The nodes of these members, and what each counts there."""
        index = self.fabric.index_of_node
        nodes = np.array([index[member.node] for member in members], dtype=np.int64)
        return nodes, np.array([count(member) for member in members], dtype=np.int64)

    def _of(self, state: JobState) -> tuple[int, IntArray, IntArray]:
        known = self._of_job.get(state.job)
        if known is None or known[0] != state.attempt:
            assert state.placement is not None, f"{state.job} holds no place"
            known = (state.attempt, *self._of_members(state.placement.members, _touched))
            self._of_job[state.job] = known
        return known


def _touched(member: MemberPlacement) -> int:
    """GPUs that a member holds, whole or in part; 1 for one without, which may hold something else."""
    return max(1, len(member.gpus) + len(member.parts))
