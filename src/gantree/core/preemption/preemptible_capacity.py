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
from collections.abc import Iterable

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import RoomToCome
from gantree.core.queue.needs import Need, NeedTable
from gantree.core.queue.node_gpus import NodeGpus, add_gpus
from gantree.core.queue.owed_rows import OwedTest
from gantree.core.queue.preemption_rules import furthest_back
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.planning.rightsizing.ranking import chooses
from gantree.topology.fabric.fabric import BoolArray, IntArray

QUANTILES = 32
"""Into so many parts the gangs that run are divided by their order; a part counts as a whole."""

Key = tuple[float, ...]


class PreemptibleCapacity:
    """Bounds as things are in one pass: who runs and may be stopped counts as when it began."""

    def __init__(self, ledger: Ledger, rooms: RoomToCome, now: float) -> None:
        self._ledger, self._rooms, self._now = ledger, rooms, now
        self._rules = ledger.policy.preemption
        self._fabric = ledger.rooms().fabric
        self._moves = ledger.policy.defragment == "apply"
        preemptible = [
            one
            for one in ledger.holding.values()
            if not one.leaving and one.moving is None and one.spec.preemptible
        ]
        self._elastic = np.zeros(len(self._fabric.nodes), dtype=np.int64)
        self._any_elastic = False
        for one in preemptible if ledger.policy.elastic else ():
            if one.spec.elastic is not None and one.placement is not None:
                self._any_elastic = True
                add_gpus(self._elastic, self._fabric, one.placement.members)
        self._of_queue: dict[int, _Ranked] = {}
        self._preemptible_in_queue: dict[int, list[JobState]] = {}
        for one in preemptible:
            self._preemptible_in_queue.setdefault(one.queue, []).append(one)
        not_owed = ledger.accounts.guarantees.exceeding(preemptible)
        self._not_owed = self._ranked(not_owed, ledger.accounts.order.before_share)
        self._most_of_group: dict[tuple[int, int, int, int], IntArray] = {}
        self._counted_at = ledger.applied
        self._kinds: list[tuple[JobState, bool]] = []
        self._kind_of_row: dict[int, tuple[int, int]] = {}
        self._enough_of_kind: dict[tuple[int, int], bool] = {}

    # ----- all heads at once

    def may_suffice_rows(self, rows: WaitingRows, heads: BoolArray, needs: NeedTable) -> BoolArray:
        """Mask of the heads that might have a place if all left that they could ever stop.

        Heads of a queue and a priority that are alike owed may stop what the first of them may, or less.
        """
        may, head = np.zeros(len(heads), dtype=np.bool_), np.flatnonzero(heads)
        if not len(head):
            return may
        signature = rows.signature[head]
        owed = OwedTest(self._ledger, rows.queues).may_be_owed(rows.queue_index[head], signature)
        first, kind = rows.kinds(head, owed)
        owed_of_kind = owed[np.searchsorted(head, first)].tolist()
        firsts = [self._ledger.jobs[rows.entry[row].position.job] for row in first.tolist()]
        self._kinds = list(zip(firsts, owed_of_kind, strict=True))
        self._needs_of_rows = needs
        most = np.array([self._most_of_kind(each) for each in range(len(first))], dtype=np.int64)
        if self._moves:
            enough = needs.all_gpus[signature] <= most[kind, 0]
        elif needs.wheres:
            enough = needs.slots[signature] <= most[kind, needs.where[signature]]
        else:
            enough = np.zeros(len(head), dtype=np.bool_)
        may[head] = enough | ~needs.is_counted[signature]
        self._kind_of_row = dict(
            zip(
                head[may[head]].tolist(),
                zip(kind[may[head]].tolist(), signature[may[head]].tolist(), strict=True),
                strict=True,
            )
        )
        return may

    def still_may_suffice(self, row: int) -> bool:
        """Whether a head, by row, might still have a place so; as `may_suffice_rows`, as things are now."""
        known = self._kind_of_row.get(row)
        if known is None:
            return False
        if self._counted_at != self._ledger.applied:
            self._counted_at = self._ledger.applied
            self._most_of_group.clear()
            self._enough_of_kind.clear()
        may = self._enough_of_kind.get(known)
        if may is None:
            may = self._enough_of_kind[known] = self._is_enough(*known)
        return may

    def _is_enough(self, kind: int, signature: int) -> bool:
        needs = self._needs_of_rows
        if not needs.is_counted[signature]:
            return True
        most = self._most_of_kind(kind)
        if self._moves:
            return bool(needs.all_gpus[signature] <= most[0])
        return bool(needs.slots[signature] <= most[needs.where[signature]])

    def _most_of_kind(self, kind: int) -> IntArray:
        state, is_owed = self._kinds[kind]
        return self._most_if_stopped(state, self._needs_of_rows, is_owed=is_owed)

    def _most_if_stopped(self, state: JobState, needs: NeedTable, *, is_owed: bool) -> IntArray:
        """The most slots for each shape and tier with all gone that a job could stop; GPUs, where gangs are moved."""
        mine, others = self._groups(state, is_owed=is_owed)
        nobody = mine == len(self._mine(state).gangs)
        room = self._rooms.gpus(self._ledger, state, is_due=is_owed)
        group = (id(room), -1 if nobody else state.queue, mine, others)
        most = self._most_of_group.get(group)
        if most is None:
            held = room + self._elastic + self._stoppable(state, mine, others)
            bound = NodeGpus(self._fabric, held)
            most = np.array([bound.all_gpus()]) if self._moves else bound.most_slots(needs.wheres)
            self._most_of_group[group] = most
        return most

    # ----- one job

    def may_suffice(self, state: JobState, need: Need) -> bool:
        """Whether a waiting job might have a place if all left that it could ever stop, beside what it may not pass."""
        if need.shape is None or not need.gpus:
            return True
        mine, others = self._groups(state, is_owed=self._may_be_within_guarantee(state))
        held = self._rooms.gpus(self._ledger, state) + self._elastic
        bound = NodeGpus(self._fabric, held + self._stoppable(state, mine, others))
        if self._moves:
            return bound.all_gpus() >= need.all_gpus
        if not bound.may_hold(need):
            return False
        stops_nobody = mine == len(self._mine(state).gangs) and others == len(self._not_owed.gangs)
        if stops_nobody and not self._any_elastic:
            return self._rooms.may_fit(self._ledger, state)
        return True

    def _stoppable(self, state: JobState, mine: int, others: int) -> IntArray:
        """GPUs by node of the gangs of its own queue, and of others, that a job could stop."""
        return self._mine(state).from_on(mine) + self._not_owed.from_on(others)

    def _groups(self, state: JobState, *, is_owed: bool) -> tuple[int, int]:
        """Which gangs of its own queue count for a job, and which others, by where these begin in their orders."""
        mine = self._mine(state).begins(state, self._rules.by, gains=self._rules.gain > 0)
        if is_owed:
            return mine, 0
        if not self._rules.across:
            return mine, len(self._not_owed.gangs)
        return mine, self._not_owed.begins(state, self._rules.by, gains=False)

    def _may_be_within_guarantee(self, state: JobState) -> bool:
        """Whether a job may take back what its queue is guaranteed; taken for granted where it has several ways."""
        accounts, spec = self._ledger.accounts, state.spec
        if not accounts.guarantees.may_reclaim(state.queue):
            return False
        several = spec.elastic is not None or chooses(spec) or accounts.guarantees.of_models
        return several or accounts.may_be_within_projected_guarantee(state)

    def _mine(self, state: JobState) -> "_Ranked":
        """The gangs of a job's own queue."""
        found = self._of_queue.get(state.queue)
        if found is None:
            gangs = self._preemptible_in_queue.get(state.queue, ())
            found = self._of_queue[state.queue] = self._ranked(gangs, None)
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
