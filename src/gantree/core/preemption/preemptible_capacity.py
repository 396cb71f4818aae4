"""The most capacity that preemption could ever free for a pending gang: a bound over whole GPUs, for one pass.

Finding and planning a preemption takes milliseconds. Most pending gangs need no plan: even without all gangs that they
could ever stop, no domain of their tier would have enough slots. The bound counts GPUs by node:

    for every gang           free GPUs once stopping gangs have left, without claims and reservations of others
                             (`core.preemption.candidates.projected_occupancy`); all GPUs of elastic gangs
    by priority              gangs of lower priority; of other queues only those that borrow
    by order                 gangs that come later in the order, in `QUANTILES`
    within the guarantee     all gangs of queues of which one borrows

The bound is never too low: minimum run times, eviction budgets and classes are left to the plan. Members that use no
whole GPUs are not bounded.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from itertools import islice

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.candidates import ProjectedOccupancies
from gantree.core.preemption.preemptible_amounts import PreemptibleAmounts
from gantree.core.queue.node_gpus import NodeGpus, add_gpus
from gantree.core.queue.preemption_rules import lowest_order_key
from gantree.core.queue.quota_test import QuotaTest
from gantree.core.queue.slot_demands import SlotDemandTable
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.site import with_beside

QUANTILES = 32
"""The running gangs are divided into so many parts by their order; a part counts as a whole."""

Key = tuple[float, ...]


class PreemptibleCapacity:
    """The bounds of one pass. Gangs that could be stopped are those that were placed when the pass began.

    holders: the number of gangs that were placed then, the oldest in the ledger.
    """

    def __init__(
        self, ledger: Ledger, projected: ProjectedOccupancies, now: float, holders: int
    ) -> None:
        self._ledger, self._projected, self._now = ledger, projected, now
        self._rules = ledger.policy.preemption
        self._fabric = ledger.rooms().fabric
        self._may_move = ledger.policy.defragment == "apply"
        self._preemptible = preemptible = [
            one
            for one in islice(ledger.holding.values(), holders)
            if not one.leaving and one.moving is None and one.spec.preemptible
        ]
        self._elastic_gpus = np.zeros(len(self._fabric.nodes), dtype=np.int64)
        self._any_elastic = False
        for one in preemptible if ledger.policy.elastic else ():
            if one.spec.elastic is not None and one.placement is not None:
                self._any_elastic = True
                add_gpus(self._elastic_gpus, self._fabric, one.placement.members)
        self._of_queue: dict[str, _StopOrder] = {}
        self._preemptible_in_queue: dict[str, list[JobState]] = {}
        for one in preemptible:
            self._preemptible_in_queue.setdefault(one.spec.queue, []).append(one)
        borrowing = ledger.accounts.guarantees.exceeding(preemptible)
        self._borrowing = self._stop_order(borrowing, ledger.accounts.order.before_share)
        queues = dict.fromkeys(one.spec.queue for one in borrowing)
        beside = [one for queue in queues for one in self._preemptible_in_queue.get(queue, ())]
        self._reclaimable = self._stop_order(beside, ledger.accounts.order.before_share)
        self._most_of_group: dict[Hashable, IntArray] = {}
        self._counted_at = ledger.applied
        self._amounts: PreemptibleAmounts | None = None

    def may_suffice(self, state: JobState, demands: SlotDemandTable) -> bool:
        """Whether a pending job may fit if all gangs left that it could ever stop.

        If it could stop none, a search decides whether it fits once stopping gangs have left.
        """
        if not demands.is_bounded[state.signature]:
            return True
        within_guarantee = self.may_be_within_guarantee(state)
        most = self.most_if_stopped(state, demands, within_guarantee=within_guarantee)[np.newaxis]
        if not self.enough(np.array([state.signature]), np.array([0]), most, demands)[0]:
            return False
        mine, others = self._groups(state, within_guarantee=within_guarantee)
        may_stop_any = mine < len(self._own_queue(state).gangs) or others < len(
            self._borrowing.gangs
        )
        return (
            may_stop_any
            or self._any_elastic
            or self._may_move
            or self._projected.may_fit(self._ledger, state)
        )

    def quotas_may_admit(
        self,
        state: JobState,
        index: int,
        signature: IntArray,
        quotas: QuotaTest,
        *,
        within_guarantee: bool,
    ) -> BoolArray:
        """A mask of signatures: those that the quotas of a job's queue, given by index, may admit once every gang has
        left that the job may stop.
        """
        may = quotas.may_start_later(np.full(len(signature), index), signature)
        if may.all():
            return may
        if self._amounts is None:
            self._amounts = PreemptibleAmounts(self._ledger, self._preemptible)
        freed = self._amounts.freed_for(state, within_guarantee=within_guarantee)
        return quotas.may_preempt(index, signature, freed)

    def enough(
        self, signature: IntArray, kind: IntArray, most: IntArray, demands: SlotDemandTable
    ) -> BoolArray:
        """A mask of rows, given by signature and kind: those for which there may be enough slots.

        most[kind]: the result of `most_if_stopped`.
        """
        if self._may_move:
            may = demands.all_gpus[signature] <= most[kind, 0]
        else:
            may = demands.slots[signature] <= most[kind, demands.shape_tier[signature]]
        enough: BoolArray = may | ~demands.is_bounded[signature]
        return enough

    def most_if_stopped(
        self, state: JobState, demands: SlotDemandTable, *, within_guarantee: bool
    ) -> IntArray:
        """By shape and tier, the most slots without all gangs that a job could stop; where gangs may move, all GPUs."""
        if self._counted_at != self._ledger.applied:
            self._counted_at = self._ledger.applied
            self._most_of_group.clear()
        mine, others = self._groups(state, within_guarantee=within_guarantee)
        none_of_mine = mine == len(self._own_queue(state).gangs)
        free = self._projected.gpus(self._ledger, state, within_guarantee=within_guarantee)
        stopped = self._reclaimable if within_guarantee else self._borrowing
        group = (id(free), "" if none_of_mine else state.spec.queue, mine, others, within_guarantee)
        most = self._most_of_group.get(group)
        if most is None:
            stoppable = self._own_queue(state).gpus_from(mine) + stopped.gpus_from(others)
            bound = NodeGpus(self._fabric, free + self._elastic_gpus + stoppable)
            most = np.array([bound.all_gpus()]) if self._may_move else bound.most_slots(demands)
            self._most_of_group[group] = most
        return most

    def may_be_within_guarantee(self, state: JobState) -> bool:
        """Whether any variant of a job may be within its queue's guarantee."""
        accounts = self._ledger.accounts
        if not accounts.guarantees.may_reclaim(state.queue):
            return False
        return accounts.may_be_within_projected_guarantee(state)

    def _groups(self, state: JobState, *, within_guarantee: bool) -> tuple[int, int]:
        """Two indices from which on a job could stop all gangs: of its own queue, and of those that borrow."""
        mine = self._own_queue(state).first_stoppable(
            state, self._rules.by, gains=self._rules.gain > 0
        )
        if within_guarantee:
            return mine, 0
        if not self._rules.across:
            return mine, len(self._borrowing.gangs)
        return mine, self._borrowing.first_stoppable(state, self._rules.by, gains=False)

    def _own_queue(self, state: JobState) -> "_StopOrder":
        """The stop order of a job's own queue."""
        found = self._of_queue.get(state.spec.queue)
        if found is None:
            gangs = self._preemptible_in_queue.get(state.spec.queue, ())
            found = self._of_queue[state.spec.queue] = self._stop_order(gangs, None)
        return found

    def _stop_order(self, gangs: Iterable[JobState], compared: int | None) -> "_StopOrder":
        return _StopOrder(self._ledger, gangs, compared, self._now)


class _StopOrder:
    """Gangs in the reverse of the order in which they are stopped, and the GPUs by node from each index on."""

    def __init__(
        self, ledger: Ledger, gangs: Iterable[JobState], compared: int | None, now: float
    ) -> None:
        self._fabric, self._compared = ledger.rooms().fabric, compared
        self._owners = ledger.rooms().owners
        by_order = ledger.policy.preemption.by == "order"
        rank = (
            (lambda one: lowest_order_key(ledger, one, now)[:compared])
            if by_order
            else _priority_key
        )
        keyed = sorted(((rank(one), one.seq, one) for one in gangs), key=lambda each: each[:2])
        self.gangs = [one for _, _, one in keyed]
        self._keys: list[Key] = [key for key, _, _ in keyed]
        self._sums: dict[int, IntArray] = {}

    def first_stoppable(self, state: JobState, by: str, *, gains: bool) -> int:
        """The index from which on a pending job could stop all gangs, rounded down to a quantile of the order."""
        if by == "none":
            return len(self.gangs)
        if by == "priority":
            key = (-float(state.priority),)
            return bisect_left(self._keys, key) if gains else bisect_right(self._keys, key)
        first_stoppable = bisect_right(self._keys, state.position.key[: self._compared])
        step = max(1, len(self.gangs) // QUANTILES)
        return (
            first_stoppable
            if first_stoppable == len(self.gangs)
            else first_stoppable // step * step
        )

    def gpus_from(self, first: int) -> IntArray:
        """The GPUs by node of the gangs from an index on."""
        gpus = self._sums.get(first)
        if gpus is None:
            gpus = np.zeros(len(self._fabric.nodes), dtype=np.int64)
            for state in self.gangs[first:]:
                assert state.placement is not None
                add_gpus(gpus, self._fabric, state.placement.members)
                add_gpus(gpus, self._fabric, self._owners.get(with_beside(state.job)[1], ()))
            self._sums[first] = gpus
        return gpus


def _priority_key(state: JobState) -> Key:
    """A key that sorts the highest priority first."""
    return (-float(state.priority),)
