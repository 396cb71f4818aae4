"""Which pending gangs may fit on free room: a bound for each shape and tier, compared with all rows at once.

A gang whose members have one shape needs `members` slots in one domain of its tier. The shape index keeps the largest
number of slots of any domain up to date, so the bound takes no search. Room of reservations that a gang may use is
added, in whole GPUs by node.

The bound is never too low: it excludes no gang that fits. Gangs of several roles, on tori, or allowed on spot nodes are
compared by GPUs only.
"""

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import RESERVATION, JobState
from gantree.core.queue.held_capacity import UsableReservations
from gantree.core.queue.node_gpus import NodeGpus, add_gpus, free_gpus
from gantree.core.queue.slot_demands import SlotDemand, SlotDemandTable
from gantree.core.queue.waiting_rows import WaitingRows
from gantree.placement.slots.slots import slots_of
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

BITS = 63
"""Of an integer of an array, without its sign."""
ANY = 1 << 40
"""More slots than any gang needs."""


class StartTest:
    """The test at one moment. Bounds are computed when they are needed, and again after a fact has been applied.

    demands: of all jobs that were pending when the pass began.
    """

    def __init__(
        self, ledger: Ledger, demands: SlotDemandTable, usable: UsableReservations, now: float
    ) -> None:
        self._ledger, self._demands, self._usable, self._now = ledger, demands, usable, now
        self._counted_at = ledger.applied
        self._most_free: dict[int, int] = {}
        self._most_with: dict[int, IntArray] = {}

    def may_start(self, state: JobState) -> bool:
        """Whether a pending job may fit on free room, or with reserved room that it may use."""
        self._refresh()
        table = self._demands
        slots, shape_tier = (
            int(table.slots[state.signature]),
            int(table.shape_tier[state.signature]),
        )
        if self._most_free_slots(shape_tier) >= slots:
            return True
        mask = self._usable.mask(self._ledger, state, self._now)
        return mask > 0 and int(self._most_slots_with(mask)[shape_tier]) >= slots

    def rows_that_may_start(self, signature: IntArray, masks: IntArray) -> BoolArray:
        """A mask of rows, given by signature and by the mask of reservations that each may use: those that may fit."""
        self._refresh()
        table = self._demands
        slots, shape_tier = table.slots[signature], table.shape_tier[signature]
        free = [self._most_free_slots(each) for each in range(len(table.shape_tiers))]
        may: BoolArray = slots <= np.array(free, dtype=np.int64)[shape_tier]
        others = np.flatnonzero(~may & (masks != 0))
        mask_of_other = masks[others]
        for mask in sorted(set(mask_of_other.tolist())):
            those = others[mask_of_other == mask]
            may[those] = slots[those] <= self._most_slots_with(mask)[shape_tier[those]]
        return may

    def reservation_masks(
        self, rows: WaitingRows, row: IntArray, guaranteed: BoolArray
    ) -> IntArray:
        """By row, a mask of the reservations that a job may use, or a superset: a bit for each, the oldest lowest.

        guaranteed: a mask of all rows, those that may be within their guarantee.
        """
        ledger, usable = self._ledger, self._usable
        if not ledger.reservations or not len(row):
            return self.no_masks(len(row))
        first, kind = rows.kinds(row, guaranteed[row])
        by_rank = [
            usable.by_rank(
                ledger,
                ledger.jobs[rows.entry[each].position.job],
                self._now,
                within_guarantee=bool(guaranteed[each]),
            )
            for each in first.tolist()
        ]
        signed = np.where(rows.enforced[row], rows.span_s[row], -rows.span_s[row])
        spans, span_index = np.unique(signed, return_inverse=True)
        by_time = [
            usable.by_time(ledger, self._now, abs(span), enforced=span > 0)
            for span in spans.tolist()
        ]
        masks = self.no_masks(len(row))
        masks |= np.array(by_rank, masks.dtype)[kind] | np.array(by_time, masks.dtype)[span_index]
        for number, job in enumerate(ledger.reservations):
            masks[row == rows.row_of(ledger.jobs[job])] |= 1 << number
        return masks

    def no_masks(self, rows: int) -> IntArray:
        """Empty masks of reservations.

        They are Python integers if the policy allows more reservations than an array integer has bits.
        """
        most = self._ledger.policy.backfill.reservations
        return np.zeros(rows, dtype=np.int64 if most < BITS else np.object_)

    def _refresh(self) -> None:
        if self._counted_at != self._ledger.applied:
            self._counted_at = self._ledger.applied
            self._most_free.clear()
            self._most_with.clear()

    def _most_free_slots(self, shape_tier: int) -> int:
        """The most free slots of a shape in one domain of a tier."""
        most = self._most_free.get(shape_tier)
        if most is None:
            most = self._most_free[shape_tier] = _most(
                self._ledger.rooms(), self._demands.shape_tiers[shape_tier]
            )
        return most

    def _most_slots_with(self, mask: int) -> IntArray:
        """The most slots for each shape and tier, if the room of some reservations were free, too."""
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
            table = self._demands
            most = NodeGpus(rooms.fabric, gpus).most_slots(table)
            gpus_held = sum(max(1, len(member.gpus)) for member in held)
            for shape_tier in table.unbounded:
                extra = _extra_slots(table.shape_tiers[shape_tier], len(held), gpus_held)
                most[shape_tier] = self._most_free_slots(shape_tier) + extra
            self._most_with[mask] = most
        return most


def _most(rooms: Occupancy, demand: SlotDemand) -> int:
    """The most slots in one domain; all free GPUs for a demand without a shape."""
    if demand.shape is None:
        return int(rooms.free_gpus_in_domain(0)[0])
    table = slots_of(rooms, demand.shape, demand.shape.models)
    return int(table.in_domain[demand.tier].max())


def _extra_slots(demand: SlotDemand, members: int, gpus: int) -> int:
    """The further slots for an unbounded demand, at most, if room of so many members and GPUs were free.

    A member without GPUs counts as a GPU.
    """
    if demand.shape is None:
        return gpus
    return ANY if members else 0
