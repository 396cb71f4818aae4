"""The most room that others could ever give up for a waiting gang: a coarse bound over whole GPUs, for one pass.

Whom a gang may stop, and what that frees, takes milliseconds to say. Most gangs that wait need not be asked: with all
gone that it could ever stop, and all that is claimed or told to others, there would still be too few slots for it in
one domain of its tier. The bound counts by node, for whole GPUs:

    for everybody            what is free, and what gangs hold that leave, but for what is claimed or told to others
                             (`core.preemption.candidates.room_to_come`); what elastic gangs hold
    by priority              gangs of a lower one; of other queues only such as are not owed what they hold
    by order                 gangs behind the waiting one in the order, by `QUANTILES` of it
    within the guarantee     every gang that is not owed what it holds

It is never too low: minimum run times, budgets and classes are left to whoever asks more closely. Members without whole
GPUs are not bounded at all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from itertools import islice

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import RoomToCome
from gantree.core.preemption.preemptible_amounts import PreemptibleAmounts
from gantree.core.queue.limit_test import LimitTest
from gantree.core.queue.needs import NeedTable
from gantree.core.queue.node_gpus import NodeGpus, add_gpus
from gantree.core.queue.preemption_rules import furthest_back
from gantree.planning.rightsizing.ranking import chooses
from gantree.topology.fabric.fabric import BoolArray, IntArray

QUANTILES = 32
"""Into so many parts the gangs that run are divided by their order; a part counts as a whole."""

Key = tuple[float, ...]


class PreemptibleCapacity:
    """Bounds as things are in one pass: who runs and may be stopped counts as when it began.

    holders: how many gangs held a place then, the first of those that do.
    """

    def __init__(self, ledger: Ledger, rooms: RoomToCome, now: float, holders: int) -> None:
        self._ledger, self._rooms, self._now = ledger, rooms, now
        self._rules = ledger.policy.preemption
        self._fabric = ledger.rooms().fabric
        self._moves = ledger.policy.defragment == "apply"
        self._preemptible = preemptible = [
            one
            for one in islice(ledger.holding.values(), holders)
            if not one.leaving and one.moving is None and one.spec.preemptible
        ]
        self._elastic = np.zeros(len(self._fabric.nodes), dtype=np.int64)
        self._any_elastic = False
        for one in preemptible if ledger.policy.elastic else ():
            if one.spec.elastic is not None and one.placement is not None:
                self._any_elastic = True
                add_gpus(self._elastic, self._fabric, one.placement.members)
        self._of_queue: dict[str, _Ranked] = {}
        self._preemptible_in_queue: dict[str, list[JobState]] = {}
        for one in preemptible:
            self._preemptible_in_queue.setdefault(one.spec.queue, []).append(one)
        not_owed = ledger.accounts.guarantees.exceeding(preemptible)
        self._not_owed = self._ranked(not_owed, ledger.accounts.order.before_share)
        self._most_of_group: dict[Hashable, IntArray] = {}
        self._counted_at = ledger.applied
        self._amounts: PreemptibleAmounts | None = None

    def may_suffice(self, state: JobState, needs: NeedTable) -> bool:
        """Whether a waiting job might have a place if all left that it could ever stop, beside what it may not pass.

        Where it could stop nobody, a search tells whether it has one when all have left who leave.
        """
        if not needs.is_counted[state.signature]:
            return True
        is_owed = self.may_be_owed(state)
        most = self.most_if_stopped(state, needs, is_owed=is_owed)[np.newaxis]
        if not self.enough(np.array([state.signature]), np.array([0]), most, needs)[0]:
            return False
        mine, others = self._groups(state, is_owed=is_owed)
        could = mine < len(self._mine(state).gangs) or others < len(self._not_owed.gangs)
        return could or self._any_elastic or self._moves or self._rooms.may_fit(self._ledger, state)

    def limits_may_admit(
        self, state: JobState, index: int, signature: IntArray, limits: LimitTest, *, is_owed: bool
    ) -> BoolArray:
        """Mask of signatures that the limits of a job's queue, by its index, may admit with all gone that it could
        stop.
        """
        may = limits.may_preempt(index, signature, {})
        if may.all():
            return may
        if self._amounts is None:
            self._amounts = PreemptibleAmounts(
                self._ledger, self._preemptible, limits.limited_nodes, limits.resources
            )
        given_up = self._amounts.given_up_for(state, is_owed=is_owed)
        return limits.may_preempt(index, signature, given_up)

    def enough(
        self, signature: IntArray, kind: IntArray, most: IntArray, needs: NeedTable
    ) -> BoolArray:
        """Mask of rows, told by signature and kind, that have room enough; most[kind] is of `most_if_stopped`."""
        if self._moves:
            may = needs.all_gpus[signature] <= most[kind, 0]
        else:
            may = needs.slots[signature] <= most[kind, needs.where[signature]]
        enough: BoolArray = may | ~needs.is_counted[signature]
        return enough

    def most_if_stopped(self, state: JobState, needs: NeedTable, *, is_owed: bool) -> IntArray:
        """The most slots for each shape and tier with all gone that a job could stop; GPUs, where gangs are moved."""
        if self._counted_at != self._ledger.applied:
            self._counted_at = self._ledger.applied
            self._most_of_group.clear()
        mine, others = self._groups(state, is_owed=is_owed)
        nobody = mine == len(self._mine(state).gangs)
        room = self._rooms.gpus(self._ledger, state, is_due=is_owed)
        group = (id(room), "" if nobody else state.spec.queue, mine, others)
        most = self._most_of_group.get(group)
        if most is None:
            stoppable = self._mine(state).from_on(mine) + self._not_owed.from_on(others)
            bound = NodeGpus(self._fabric, room + self._elastic + stoppable)
            most = np.array([bound.all_gpus()]) if self._moves else bound.most_slots(needs)
            self._most_of_group[group] = most
        return most

    def may_be_owed(self, state: JobState) -> bool:
        """Whether a job may take back what its queue is guaranteed; taken for granted where it has several ways."""
        accounts, spec = self._ledger.accounts, state.spec
        if not accounts.guarantees.may_reclaim(state.queue):
            return False
        several = spec.elastic is not None or chooses(spec) or accounts.guarantees.of_models
        return several or accounts.may_be_within_projected_guarantee(state)

    def _groups(self, state: JobState, *, is_owed: bool) -> tuple[int, int]:
        """Which gangs of its own queue count for a job, and which others, by where these begin in their orders."""
        mine = self._mine(state).begins(state, self._rules.by, gains=self._rules.gain > 0)
        if is_owed:
            return mine, 0
        if not self._rules.across:
            return mine, len(self._not_owed.gangs)
        return mine, self._not_owed.begins(state, self._rules.by, gains=False)

    def _mine(self, state: JobState) -> "_Ranked":
        """The gangs of a job's own queue, of all of its users."""
        found = self._of_queue.get(state.spec.queue)
        if found is None:
            gangs = self._preemptible_in_queue.get(state.spec.queue, ())
            found = self._of_queue[state.spec.queue] = self._ranked(gangs, None)
        return found

    def _ranked(self, gangs: Iterable[JobState], compared: int | None) -> "_Ranked":
        return _Ranked(self._ledger, gangs, compared, self._now)


class _Ranked:
    """Gangs in the order in which they are stopped last to first, and what those from one on hold of each node."""

    def __init__(
        self, ledger: Ledger, gangs: Iterable[JobState], compared: int | None, now: float
    ) -> None:
        self._fabric, self._compared = ledger.rooms().fabric, compared
        by_order = ledger.policy.preemption.by == "order"
        rank = (lambda one: furthest_back(ledger, one, now)[:compared]) if by_order else _falling
        keyed = sorted(((rank(one), one.seq, one) for one in gangs), key=lambda each: each[:2])
        self.gangs = [one for _, _, one in keyed]
        self._keys: list[Key] = [key for key, _, _ in keyed]
        self._sums: dict[int, IntArray] = {}

    def begins(self, state: JobState, by: str, *, gains: bool) -> int:
        """Where those begin that a waiting job could stop, rounded down to a quantile of the order."""
        if by == "none":
            return len(self.gangs)
        if by == "priority":
            key = (-float(state.priority),)
            return bisect_left(self._keys, key) if gains else bisect_right(self._keys, key)
        begins = bisect_right(self._keys, state.position.key[: self._compared])
        step = max(1, len(self.gangs) // QUANTILES)
        return begins if begins == len(self.gangs) else begins // step * step

    def from_on(self, first: int) -> IntArray:
        """GPUs of each node that the gangs hold from one on."""
        gpus = self._sums.get(first)
        if gpus is None:
            gpus = np.zeros(len(self._fabric.nodes), dtype=np.int64)
            for state in self.gangs[first:]:
                assert state.placement is not None
                add_gpus(gpus, self._fabric, state.placement.members)
            self._sums[first] = gpus
        return gpus


def _falling(state: JobState) -> Key:
    """The highest priority first."""
    return (-float(state.priority),)
