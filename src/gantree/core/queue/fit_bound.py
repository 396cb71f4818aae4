"""Which waiting lines could get another answer now than at the last walk: what each waits on, quickly compared.

A gang whose members of one shape fit nowhere near is refused by the shape index alone: it needs `members` slots in one
domain of its tier, and no domain has as many. That bound is the largest number of slots of a domain, kept up to date by
the index, so it costs no search; it is never too low, so no gang is passed over that has a place. What is held of
reserved room counts for those that may use it. Gangs of several roles, those on tori and those that may run on spot
nodes are compared by GPUs alone.

Bounds are counted once for each shape and tier when something was freed, taken or held, and compared for each
signature, not for each job: of ten thousand that wait, an event looks at the few hundred signatures. For one gang of
each that passes a place is searched, once as the rooms are and once with all that is reserved.

Everything here can be forgotten: a walk over all lines must decide the same, and a test holds it to that.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import BOOKING, JobState
from gantree.core.queue.held_capacity import lifted
from gantree.model.jobs import Job, Shape
from gantree.placement.choice.search import fits
from gantree.placement.request.sizes import sizes_of
from gantree.placement.slots.slots import slots_of
from gantree.planning.rightsize import chooses
from gantree.policy.order import Line, Position
from gantree.topology.occupancy.occupancy import Occupancy

FEW = 4
"""So few signatures are asked without a bound: to search is quicker than to keep an index of shapes for bounds."""


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


class Wakes:
    """Needs by signature, on the fabric of the moment, and what is there for them.

    _fitting are the signatures that may fit: on free room, or, where True, only with room that is reserved.
    """

    def __init__(self) -> None:
        self._fabric: object = None
        self._needs: dict[int, Need] = {}
        self._specs: dict[int, Job] = {}
        self._where: dict[tuple[Shape | None, int], int] = {}
        self._applied = -1
        self._state: tuple[object, ...] = ()
        self._fitting: dict[int, bool] = {}
        self._fits_nowhere: dict[int, bool] = {}
        self._freed_at = -1
        self._passes_until = 0.0
        self._lowest = inf
        self._may_be_due: Callable[[int], bool] = lambda queue: True
        self._told: dict[Line, Position] = {}

    def look(self, ledger: Ledger) -> None:
        """Count what is there, if any fact was applied since the last time."""
        if self._applied == ledger.applied:
            return
        self._applied = ledger.applied
        state = _state(ledger)
        if self._state == state:
            return
        self._state = state
        self._may_be_due = ledger.accounts.may_reclaim
        self._told = last_of_lines(ledger.jobs[job] for job in ledger.bookings)
        held, self._passes_until, self._lowest = _reserved(ledger)
        if self._freed_at != ledger.free_version:
            self._freed_at = ledger.free_version
            self._fits_nowhere.clear()
        if len(ledger.lines.signatures) <= FEW:
            self._fitting = dict.fromkeys(ledger.lines.signatures, False)
        else:
            self._fitting = self._compared(ledger, held)

    def _compared(self, ledger: Ledger, held: Held) -> dict[int, bool]:
        """The signatures that may fit, as far as bounds and a search for each tell."""
        most_of_where: dict[int, int] = {}
        fitting, reserved = {}, []
        for signature in ledger.lines.signatures:
            need = self.need(ledger, signature)
            most = most_of_where.get(need.where)
            if most is None:
                most = most_of_where[need.where] = _most(ledger.rooms(), need)
            if most >= need.slots and self._fits(ledger, signature):
                fitting[signature] = False
            elif held.members and most + _more(need, held) >= need.slots:
                reserved.append(signature)
        for signature in self._that_fit_where_reserved(ledger, reserved):
            fitting[signature] = True
        return fitting

    def _fits(self, ledger: Ledger, signature: int) -> bool:
        """Whether the gangs of a signature may fit as the rooms are: searched for, where one search tells it."""
        spec = self._specs[signature]
        several = spec.elastic is not None or chooses(spec) or spec.topology.box is not None
        return several or ledger.rooms().keeps_spares or fits(ledger.rooms(), spec)

    def _that_fit_where_reserved(self, ledger: Ledger, signatures: list[int]) -> list[int]:
        """Those that may fit if nothing were reserved; what does not stays so until room is freed."""
        unknown = [each for each in signatures if each not in self._fits_nowhere]
        if unknown:
            with lifted(ledger, [BOOKING + job for job in ledger.bookings]):
                for signature in unknown:
                    self._fits_nowhere[signature] = not self._fits(ledger, signature)
        return [each for each in signatures if not self._fits_nowhere[each]]

    def may_fit(self, line: Line, now: float) -> bool:
        """Whether a line may fit on what is free now, or on reserved room that it may use."""
        only_reserved = self._fitting.get(line.signature)
        if only_reserved is None:
            return False
        if not only_reserved or now + line.span_s <= self._passes_until:
            return True
        return line.priority >= self._lowest or self._may_be_due(line.queue)

    def is_told(self, line: Line) -> bool:
        """Whether a job of a line was told a start."""
        return line in self._told

    def is_told_behind(self, line: Line, position: Position) -> bool:
        """Whether a job of a line was told a start that stands at a position or behind it."""
        last = self._told.get(line)
        return last is not None and position <= last

    def fitting_in(self, ledger: Ledger, queue: int) -> frozenset[int]:
        """The signatures of a queue that may fit."""
        self.look(ledger)
        return frozenset(ledger.lines.signatures_in(queue) & self._fitting.keys())

    def suffices(self, ledger: Ledger, line: Line, freeable_gpus: int) -> bool:
        """Whether a line might fit if so many GPUs more were free; by GPUs alone, so never wrongly no."""
        need = self.need(ledger, line.signature)
        return need.all_gpus <= int(ledger.rooms().free_gpus_in_domain(0)[0]) + freeable_gpus

    def need(self, ledger: Ledger, signature: int) -> Need:
        """What the gangs of a signature that somebody waits with need."""
        if self._fabric is not ledger.rooms().fabric:
            self._fabric = ledger.rooms().fabric
            self._needs.clear()
            self._fits_nowhere.clear()
        need = self._needs.get(signature)
        if need is None:
            line = next(iter(ledger.lines.of_signature(signature)))
            spec = ledger.jobs[ledger.lines[line][0].job].spec
            self._specs[signature] = spec
            need = Need.of(ledger.rooms(), spec)
            where = self._where.setdefault((need.shape, need.tier), len(self._where))
            need = Need(need.shape, need.tier, need.slots, need.gpus, where)
            self._needs[signature] = need
        return need


def last_of_lines(waiting: Iterable[JobState]) -> dict[Line, Position]:
    """Of some jobs that wait, the last of each line."""
    last: dict[Line, Position] = {}
    for state in waiting:
        assert state.line is not None, f"{state.job} waits in no line"
        last[state.line] = max(last.get(state.line, state.position), state.position)
    return last


def _state(ledger: Ledger) -> tuple[object, ...]:
    """What is different whenever another gang may fit, or is told a start."""
    held = (tuple(ledger.bookings), tuple(ledger.claims))
    out_of_use = (len(ledger.unusable), ledger.site.version)
    return ledger.free_version, ledger.placings, held, out_of_use, ledger.lines.kinds


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
    if not ledger.bookings:
        return NOTHING, 0.0, inf
    owners = ledger.rooms().owners
    members = [m for job in ledger.bookings for m in owners.get(BOOKING + job, ())]
    held = Held(len(members), sum(max(1, len(member.gpus)) for member in members))
    until = max((booking.starts_at for booking in ledger.bookings.values()), default=0.0)
    guessed = [ledger.jobs[j].priority for j, b in ledger.bookings.items() if not b.promised]
    if guessed and (ledger.policy.order[0] != "priority" or ledger.policy.age_per_day):
        return held, until, -inf
    return held, until, min(guessed, default=inf)
