"""Which waiting gangs may find a place: a bound for each shape and tier, compared for all rows at once.

A gang whose members of one shape fit nowhere near is refused by the shape index alone: it needs `members` slots in one
domain of its tier, and no domain has as many. That bound is the largest number of slots of a domain, kept up to date by
the index, so it costs no search. Room that is held for told starts counts for those that may use it, by whole GPUs of
each node. The bound is never too low, so no gang is passed over that has a place. Gangs of several roles, those on tori
and those that may run on spot nodes are compared by GPUs alone.
"""

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import RESERVATION, JobState
from gantree.core.queue.held_capacity import UsableReservations
from gantree.core.queue.needs import Need, NeedTable
from gantree.core.queue.node_gpus import NodeGpus, add_gpus, free_gpus
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.placement.slots.slots import slots_of
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

BITS = 63
"""Of a number of an array, without its sign."""
ANY = 1 << 40
"""More slots than any gang needs."""


class StartTest:
    """The test as things are now: bounds are counted when they are asked for, and anew once anything was decided.

    needs: of all that waited when the pass began.
    """

    def __init__(
        self, ledger: Ledger, needs: NeedTable, usable: UsableReservations, now: float
    ) -> None:
        self._ledger, self._needs, self._usable, self._now = ledger, needs, usable, now
        self._counted_at = ledger.applied
        self._most_free: dict[int, int] = {}
        self._most_with: dict[int, IntArray] = {}

    def may_start(self, state: JobState) -> bool:
        """Whether a waiting job may find a place on what is free now, or on reserved room that it may use."""
        self._follow()
        table = self._needs
        slots, where = int(table.slots[state.signature]), int(table.where[state.signature])
        if self._free(where) >= slots:
            return True
        mask = self._usable.mask(self._ledger, state, self._now)
        return mask > 0 and int(self._with_reserved(mask)[where]) >= slots

    def rows_that_may_start(self, signature: IntArray, reserved: IntArray) -> BoolArray:
        """Mask of some rows, told by their signatures and by the reserved room that they may use, as `reserved_of`."""
        self._follow()
        table = self._needs
        slots, where = table.slots[signature], table.where[signature]
        free = [self._free(each) for each in range(len(table.wheres))]
        may: BoolArray = slots <= np.array(free, dtype=np.int64)[where]
        others = np.flatnonzero(~may & (reserved != 0))
        mask_of = reserved[others]
        for mask in sorted(set(mask_of.tolist())):
            those = others[mask_of == mask]
            may[those] = slots[those] <= self._with_reserved(mask)[where[those]]
        return may

    def reserved_of(self, rows: WaitingRows, row: IntArray, owed: BoolArray) -> IntArray:
        """The reserved room that some rows may use, at most: a bit for each told start, the first made the lowest.

        owed, of all rows: who might be owed what it asks for.
        """
        ledger, usable = self._ledger, self._usable
        if not ledger.reservations or not len(row):
            return self.no_rooms(len(row))
        first, kind = rows.kinds(row, owed[row])
        by_rank = [
            usable.by_rank(
                ledger,
                ledger.jobs[rows.entry[each].position.job],
                self._now,
                within_guarantee=bool(owed[each]),
            )
            for each in first.tolist()
        ]
        signed = np.where(rows.enforced[row], rows.span_s[row], -rows.span_s[row])
        spans, span_index = np.unique(signed, return_inverse=True)
        by_time = [
            usable.by_time(ledger, self._now, abs(span), enforced=span > 0)
            for span in spans.tolist()
        ]
        masks = self.no_rooms(len(row))
        masks |= np.array(by_rank, masks.dtype)[kind] | np.array(by_time, masks.dtype)[span_index]
        for number, job in enumerate(ledger.reservations):
            masks[row == rows.row_of(ledger.jobs[job])] |= 1 << number
        return masks

    def no_rooms(self, rows: int) -> IntArray:
        """Masks without reserved room; of Python's numbers, where there may be more told starts than bits of one."""
        may_be = self._ledger.policy.backfill.reservations
        return np.zeros(rows, dtype=np.int64 if may_be < BITS else np.object_)

    def _follow(self) -> None:
        if self._counted_at != self._ledger.applied:
            self._counted_at = self._ledger.applied
            self._most_free.clear()
            self._most_with.clear()

    def _free(self, where: int) -> int:
        """The most slots of a shape and tier in one domain of what is free."""
        most = self._most_free.get(where)
        if most is None:
            most = self._most_free[where] = _most(self._ledger.rooms(), self._needs.wheres[where])
        return most

    def _with_reserved(self, mask: int) -> IntArray:
        """The most slots for each shape and tier with what is held for some told starts, a bit for each."""
        most = self._most_with.get(mask)
        if most is None:
            rooms = self._ledger.rooms()
            owners = [RESERVATION + job for job in self._ledger.reservations]
            held = [
                member
                for number, owner in enumerate(owners)
                if mask >> number & 1
                for member in rooms.owners.get(owner, ())
            ]
            gpus = free_gpus(rooms)
            add_gpus(gpus, rooms.fabric, held)
            gpus[~rooms.usable_node] = 0
            table = self._needs
            most = NodeGpus(rooms.fabric, gpus).most_slots(table)
            gpus_held = sum(max(1, len(member.gpus)) for member in held)
            for where in table.uncounted:
                more = _more(table.wheres[where], len(held), gpus_held)
                most[where] = self._free(where) + more
            self._most_with[mask] = most
        return most


def _most(rooms: Occupancy, need: Need) -> int:
    """The most slots that a domain has; free GPUs for a need that counts these."""
    if need.shape is None:
        return int(rooms.free_gpus_in_domain(0)[0])
    table = slots_of(rooms, need.shape, need.shape.models)
    return int(table.in_domain[need.tier].max())


def _more(need: Need, members: int, gpus: int) -> int:
    """How many slots more there might be, without whole GPUs of one shape, if room that is held for so many members and
    on so many GPUs were free; a member without GPUs counts as one.
    """
    if need.shape is None:
        return gpus
    return ANY if members else 0
