"""Which waiting gangs may fit: a bound for each signature, quickly compared.

A gang whose members of one shape fit nowhere near is refused by the shape index alone: it needs `members` slots in one
domain of its tier, and no domain has as many. That bound is the largest number of slots of a domain, kept up to date by
the index, so it costs no search; it is never too low, so no gang is passed over that has a place. What is held of
reserved room counts for those that may use it. Gangs of several roles, those on tori and those that may run on spot
nodes are compared by GPUs alone.

Bounds are counted once for each shape and tier, and compared for each signature, not for each job; which of ten
thousand rows may fit is looked up by their signatures (`core.queue.waiting_rows`).
"""

from collections.abc import Iterable
from enum import Enum, auto
from math import inf
from typing import NamedTuple

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import RESERVATION, JobState
from gantree.core.queue.held_capacity import Passing, lifted
from gantree.core.queue.needs import Need, Needs
from gantree.core.queue.node_gpus import NodeGpus, add_gpus, free_gpus
from gantree.core.queue.owed_rows import OwedTest
from gantree.core.queue.waiting_rows import WaitingRows, first_of_signature
from gantree.placement.choice.search import fits
from gantree.placement.slots.slots import slots_of
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy


class Held(NamedTuple):
    """What is held for told starts: members, and their GPUs; one without counts as one GPU."""

    members: int
    gpus: int


NOTHING = Held(0, 0)


class Fit(Enum):
    """Where a gang may fit: on free room, on reserved room alone, or nowhere."""

    FREE = auto()
    RESERVED = auto()
    NOWHERE = auto()


class FitBound:
    """Which signatures may fit as rooms are in one pass, each counted when it is first asked about.

    mask_of_kind is the most reserved room that rows of a kind may use, a bit for each told start.
    """

    def __init__(self, ledger: Ledger, needs: Needs) -> None:
        self._ledger, self._needs = ledger, needs
        self._may_be_due = ledger.accounts.guarantees.may_reclaim
        self._held, self._passes_until, self._lowest = _reserved(ledger)
        self._most_of_where: dict[int, int] = {}
        self._known: dict[int, Fit] = {}
        self._now: dict[int, Fit] = {}
        self.mask_of_kind: dict[int, int] = {}
        self._counted_at = ledger.applied

    def may_fit(self, eq_class: EquivalenceClass, now: float) -> bool:
        """Whether a line may fit on what is free now, or on reserved room that it may use."""
        fit = self._fit_now(eq_class.signature)
        if fit is not Fit.RESERVED or now + eq_class.span_s <= self._passes_until:
            return fit is not Fit.NOWHERE
        return eq_class.priority >= self._lowest or self._may_be_due(eq_class.queue)

    def kinds_of_rows(self, rows: WaitingRows, now: float) -> IntArray:
        """0 for a row that fits nowhere, else a number that rows share which ask for the same and may use the same
        reserved room: they get the same answer.
        """
        signatures = self._ledger.waiting.signatures
        self._compare([each for each in signatures if each not in self._known])
        fits_somewhere = np.zeros(self._ledger.signatures.given, dtype=np.bool_)
        for each in signatures:
            fits_somewhere[each] = self._known[each] is not Fit.NOWHERE
        kind_of_row = np.zeros(len(rows.signature), dtype=np.int64)
        row = np.flatnonzero(fits_somewhere[rows.signature])
        if len(row):
            signature, masks = rows.signature[row], self._masks(rows, row, now)
            mask, mask_index = np.unique(masks, return_inverse=True)
            kind = mask_index * self._ledger.signatures.given + signature + 1
            kind_of_row[row] = np.where(self._has_slots_with(signature, mask, mask_index), kind, 0)
            self.mask_of_kind = dict(zip(kind.tolist(), masks.tolist(), strict=True))
        return kind_of_row

    def _masks(self, rows: WaitingRows, row: IntArray, now: float) -> IntArray:
        """The reserved room that rows may use, if they are owed what they might be: a bit for each told start."""
        ledger, passing = self._ledger, Passing()
        if not ledger.reservations:
            return np.zeros(len(row), dtype=np.int64)
        owed = OwedTest(ledger, rows.queues).may_be_owed(rows.queue_index[row], rows.signature[row])
        first, kind = rows.kinds(row, owed)
        firsts = [ledger.jobs[rows.entry[each].position.job] for each in first.tolist()]
        owed_of_kind = owed[np.searchsorted(row, first)].tolist()
        by_right = np.array(
            [
                passing.by_right(ledger, state, now, is_due=is_owed)
                for state, is_owed in zip(firsts, owed_of_kind, strict=True)
            ],
            dtype=np.int64,
        )
        signed = np.where(rows.enforced[row], rows.span_s[row], -rows.span_s[row])
        spans, span_index = np.unique(signed, return_inverse=True)
        by_time = np.array(
            [passing.by_time(ledger, now, abs(span), enforced=span > 0) for span in spans.tolist()],
            dtype=np.int64,
        )
        return by_right[kind] | by_time[span_index]

    def _has_slots_with(
        self, signature: IntArray, mask: IntArray, mask_index: IntArray
    ) -> BoolArray:
        """Mask of rows for which there are slots, told by signature and by the index of the room that they may use."""
        table = self._needs.table(self._ledger)
        if not table.wheres:
            return np.ones(len(signature), dtype=np.bool_)
        most = np.array([self._with_reserved(each).most_slots(table.wheres) for each in mask])
        enough = table.slots[signature] <= most[mask_index, table.where[signature]]
        has_slots: BoolArray = enough | ~table.is_counted[signature]
        return has_slots

    def _with_reserved(self, mask: int) -> NodeGpus:
        """GPUs that are free, with what is held for some told starts: a bit for each, the first made the lowest."""
        rooms = self._ledger.rooms()
        gpus = free_gpus(rooms)
        for number, job in enumerate(self._ledger.reservations):
            if mask >> number & 1:
                add_gpus(gpus, rooms.fabric, rooms.owners.get(RESERVATION + job, ()))
        return NodeGpus(rooms.fabric, gpus)

    def _fit_now(self, signature: int) -> Fit:
        """Where a signature may fit: as when the pass began, as long as there are as many slots."""
        if signature not in self._known:
            self._compare([signature])
        if self._counted_at != self._ledger.applied:
            self._counted_at = self._ledger.applied
            self._held, self._passes_until, self._lowest = _reserved(self._ledger)
            self._most_of_where.clear()
            self._now.clear()
        fit = self._now.get(signature)
        if fit is None:
            fit = self._now[signature] = self._recount(signature)
        return fit

    def _recount(self, signature: int) -> Fit:
        fit = self._known[signature]
        if fit is Fit.FREE and not self._has_slots(signature, reserved=False):
            fit = Fit.RESERVED
        if fit is Fit.RESERVED and not self._has_slots(signature, reserved=True):
            fit = Fit.NOWHERE
        return fit

    def _has_slots(self, signature: int, *, reserved: bool) -> bool:
        """Whether a domain has as many slots as a gang needs; reserved: counting what is held for told starts, too."""
        need = self._needs.of(self._ledger, signature)
        most = self._most_of_where.get(need.where)
        if most is None:
            most = self._most_of_where[need.where] = _most(self._ledger.rooms(), need)
        if most >= need.slots:
            return True
        return reserved and self._held.members > 0 and most + _more(need, self._held) >= need.slots

    def _compare(self, signatures: list[int]) -> None:
        """By the bound, then by a search for one of each signature, which tells it of all."""
        reserved: list[int] = []
        for signature in signatures:
            self._known[signature] = Fit.NOWHERE
            if self._has_slots(signature, reserved=False) and self._is_found(signature):
                self._known[signature] = Fit.FREE
            elif self._held.members and self._has_slots(signature, reserved=True):
                reserved.append(signature)
        if reserved:
            with lifted(self._ledger, [RESERVATION + job for job in self._ledger.reservations]):
                for signature in reserved:
                    if self._is_found(signature):
                        self._known[signature] = Fit.RESERVED

    def _is_found(self, signature: int) -> bool:
        """Whether a search finds a place; taken for granted where one search would not tell it."""
        rooms, spec = self._ledger.rooms(), first_of_signature(self._ledger, signature).spec
        several = spec.elastic is not None or chooses(spec) or spec.topology.box is not None
        return several or rooms.spares.any_kept or fits(rooms, spec)


def last_of_classes(waiting: Iterable[JobState]) -> dict[EquivalenceClass, Position]:
    """Of some jobs that wait, the last of each line."""
    last: dict[EquivalenceClass, Position] = {}
    for state in waiting:
        assert state.equivalence_class is not None, f"{state.job} waits in no line"
        last[state.equivalence_class] = max(
            last.get(state.equivalence_class, state.position), state.position
        )
    return last


def _most(rooms: Occupancy, need: Need) -> int:
    """The most slots that a domain has; free GPUs for a need that counts these."""
    if need.shape is None:
        return int(rooms.free_gpus_in_domain(0)[0])
    table = slots_of(rooms, need.shape, need.shape.models)
    return int(table.in_domain[need.tier].max())


def _more(need: Need, held: Held) -> int:
    """How many slots more there might be if room that is held were free: with the rest of its node each member's room
    may make one more than it has GPUs for."""
    if need.shape is None:
        return held.gpus
    return held.members + held.gpus // need.gpus if need.gpus else need.slots


def _held(ledger: Ledger) -> Held:
    """What is held for told starts now."""
    owners = ledger.rooms().owners
    members = [m for job in ledger.reservations for m in owners.get(RESERVATION + job, ())]
    return Held(len(members), sum(max(1, len(member.gpus)) for member in members))


def _reserved(ledger: Ledger) -> tuple[Held, float, float]:
    """What is reserved, until when a gang may use such room, and from which priority on at any time.

    Who goes before a job whose start is only estimated may use its room. What is claimed is its claimant's alone, which
    is not asked while it waits for it.
    """
    if not ledger.reservations:
        return NOTHING, 0.0, inf
    held = _held(ledger)
    until = max(
        (reservation.starts_at for reservation in ledger.reservations.values()), default=0.0
    )
    guessed = [ledger.jobs[j].priority for j, b in ledger.reservations.items() if not b.promised]
    if guessed and (ledger.policy.order[0] != "priority" or ledger.policy.age_per_day):
        return held, until, -inf
    return held, until, min(guessed, default=inf)
