"""Which waiting gangs may fit: a bound for each signature, quickly compared.

A gang whose members of one shape fit nowhere near is refused by the shape index alone: it needs `members` slots in one
domain of its tier, and no domain has as many. That bound is the largest number of slots of a domain, kept up to date by
the index, so it costs no search; it is never too low, so no gang is passed over that has a place. What is held of
reserved room counts for those that may use it. Gangs of several roles, those on tori and those that may run on spot
nodes are compared by GPUs alone.

Bounds are counted once for each shape and tier, and compared for each signature, not for each job: of ten thousand that
wait, a pass looks at the few hundred signatures.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import RESERVATION, JobState
from gantree.core.queue.held_capacity import lifted
from gantree.model.jobs import Job, Shape
from gantree.placement.choice.search import fits
from gantree.placement.request.sizes import sizes_of
from gantree.placement.slots.slots import slots_of
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.order import Position
from gantree.policy.waiting_jobs import EquivalenceClass
from gantree.topology.occupancy.occupancy import Occupancy

MOST_NEEDS = 10_000
"""Signatures that are remembered; beyond that all are worked out anew."""


@dataclass(frozen=True, slots=True)
class Need:
    """At least `slots` slots of a shape in one domain of a tier; shape None: so many free GPUs.

    where is a number for the shape and the tier together.
    """

    shape: Shape | None
    tier: int
    slots: int
    gpus: int
    where: int = 0

    @classmethod
    def of(cls, occupancy: Occupancy, job: Job) -> "Need":
        """What a job needs at its smallest size."""
        members = min((job.members, *sizes_of(job))) if job.elastic else job.members
        gpus = job.gpus // job.members * members if len(job.roles) == 1 else job.gpus
        if len(job.roles) > 1 or job.topology.box is not None or job.spot:
            return cls(None, 0, gpus, gpus)
        role, tiers = job.roles[0], occupancy.fabric.tiers
        required = role.topology.required or job.topology.required
        tier = 0 if required is None else len(tiers) - 1
        if required in tiers:
            tier = tiers.index(required)
        return cls(role.shape, tier, members, role.shape.gpus)

    @property
    def all_gpus(self) -> int:
        """GPUs of all slots."""
        return self.slots * (self.gpus if self.shape is not None else 1)


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


class Needs:
    """What gangs need, by signature: it depends on the job and the fabric alone, so it is kept while both stay."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._needs: dict[int, Need] = {}
        self._where: dict[tuple[Shape | None, int], int] = {}

    def of(self, ledger: Ledger, signature: int) -> Need:
        """What the gangs of a signature that somebody waits with need."""
        if self._fabric is not ledger.rooms().fabric or len(self._needs) > MOST_NEEDS:
            self._fabric = ledger.rooms().fabric
            self._needs.clear()
            self._where.clear()
        need = self._needs.get(signature)
        if need is None:
            eq_class = next(iter(ledger.waiting.classes_of_signature(signature)))
            need = Need.of(ledger.rooms(), ledger.jobs[ledger.waiting[eq_class][0].job].spec)
            where = self._where.setdefault((need.shape, need.tier), len(self._where))
            need = self._needs[signature] = replace(need, where=where)
        return need


class FitBound:
    """Which signatures may fit as rooms are in one pass, each counted when it is first asked about."""

    def __init__(self, ledger: Ledger, needs: Needs) -> None:
        self._ledger, self._needs = ledger, needs
        self._may_be_due = ledger.accounts.guarantees.may_reclaim
        self._held, self._passes_until, self._lowest = _reserved(ledger)
        self._most_of_where: dict[int, int] = {}
        self._known: dict[int, Fit] = {}
        self._is_complete = False

    def may_fit(self, eq_class: EquivalenceClass, now: float) -> bool:
        """Whether a line may fit on what is free now, or on reserved room that it may use."""
        fit = self._fit(eq_class.signature)
        if fit is not Fit.RESERVED or now + eq_class.span_s <= self._passes_until:
            return fit is not Fit.NOWHERE
        return eq_class.priority >= self._lowest or self._may_be_due(eq_class.queue)

    def fitting_in(self, queue: int) -> list[int]:
        """The signatures of a queue that may fit."""
        if not self._is_complete:
            self._is_complete = True
            self._compare(
                [each for each in self._ledger.waiting.signatures if each not in self._known]
            )
        signatures = sorted(self._ledger.waiting.signatures_in(queue))
        return [each for each in signatures if self._known[each] is not Fit.NOWHERE]

    def _fit(self, signature: int) -> Fit:
        if signature not in self._known:
            self._compare([signature])
        return self._known[signature]

    def _compare(self, signatures: list[int]) -> None:
        """By the bound, then by a search for one of each signature, which tells it of all."""
        rooms, held, reserved = self._ledger.rooms(), self._held, list[int]()
        for signature in signatures:
            need = self._needs.of(self._ledger, signature)
            most = self._most_of_where.get(need.where)
            if most is None:
                most = self._most_of_where[need.where] = _most(rooms, need)
            self._known[signature] = Fit.NOWHERE
            if most >= need.slots and _is_found(rooms, self._spec(signature)):
                self._known[signature] = Fit.FREE
            elif held.members and most + _more(need, held) >= need.slots:
                reserved.append(signature)
        if reserved:
            with lifted(self._ledger, [RESERVATION + job for job in self._ledger.reservations]):
                for signature in reserved:
                    if _is_found(rooms, self._spec(signature)):
                        self._known[signature] = Fit.RESERVED

    def _spec(self, signature: int) -> Job:
        eq_class = next(iter(self._ledger.waiting.classes_of_signature(signature)))
        return self._ledger.jobs[self._ledger.waiting[eq_class][0].job].spec


def _is_found(rooms: Occupancy, spec: Job) -> bool:
    """Whether a search finds a place; taken for granted where one search would not tell it."""
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


def _reserved(ledger: Ledger) -> tuple[Held, float, float]:
    """What is reserved, until when a gang may use such room, and from which priority on at any time.

    Who goes before a job whose start is only estimated may use its room. What is claimed is its claimant's alone, which
    is not asked while it waits for it.
    """
    if not ledger.reservations:
        return NOTHING, 0.0, inf
    owners = ledger.rooms().owners
    members = [m for job in ledger.reservations for m in owners.get(RESERVATION + job, ())]
    held = Held(len(members), sum(max(1, len(member.gpus)) for member in members))
    until = max(
        (reservation.starts_at for reservation in ledger.reservations.values()), default=0.0
    )
    guessed = [ledger.jobs[j].priority for j, b in ledger.reservations.items() if not b.promised]
    if guessed and (ledger.policy.order[0] != "priority" or ledger.policy.age_per_day):
        return held, until, -inf
    return held, until, min(guessed, default=inf)
