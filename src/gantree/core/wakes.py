"""Which waiting lines could get another answer now than at the last walk: what each waits on, quickly compared.

A gang whose members of one shape fit nowhere near is refused by the shape index alone: it needs `members` slots in one
domain of its tier, and no domain has as many. That bound is the sum of slots of a domain, kept up to date by the index,
so it costs no search; it is never too low, so no gang is passed over that has a place. What gangs hold on reserved room
counts for those that may use it. Gangs of several roles, those on tori and those that may
run on spot nodes are compared by GPUs alone.

Everything here can be forgotten: `every` walks over all lines must decide the same, and a test holds it to that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from gantree.core.ledger import Ledger
from gantree.model.jobs import Job, Shape
from gantree.placement.sizes import sizes_of
from gantree.placement.slots import slots_of
from gantree.policy.order import Line
from gantree.topology.occupancy import Occupancy

MayMakeRoom = Callable[[Ledger, Line, float], bool]
IsOver = Callable[[Ledger, Line], bool]


@dataclass(frozen=True, slots=True)
class Need:
    """At least `slots` slots of a shape in one domain of a tier; shape None: so many free GPUs."""

    shape: Shape | None
    tier: int
    slots: int
    gpus: int

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


class Wakes:
    """Needs by signature, for one fabric."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._need_of_signature: dict[int, Need] = {}

    def awake(
        self, ledger: Ledger, now: float, is_over: IsOver, may_make_room: MayMakeRoom
    ) -> Iterator[Line]:
        """The lines that may fit now and are not over their quota, or for which somebody may make room."""
        held_gpus, passes = _reserved(ledger)
        told = {ledger.jobs[job].line for job in ledger.bookings}
        room_of_signature: dict[int, tuple[int, int]] = {}
        for line in ledger.lines:
            room = room_of_signature.get(line.signature)
            if room is None:
                room = room_of_signature[line.signature] = self._room(ledger, line, held_gpus)
            may_pass = now + line.span_s <= passes
            fits = room[may_pass] >= 0 and not is_over(ledger, line)
            if fits or line in told or may_make_room(ledger, line, now):
                yield line

    def suffices(self, ledger: Ledger, line: Line, freeable_gpus: int) -> bool:
        """Whether a line might fit if so many GPUs more were free; by GPUs alone, so never wrongly no."""
        need = self._need(ledger, line)
        gpus = need.slots * (need.gpus if need.shape is not None else 1)
        return gpus <= int(ledger.rooms().free_gpus_in_domain(0)[0]) + freeable_gpus

    def _need(self, ledger: Ledger, line: Line) -> Need:
        if self._fabric is not ledger.rooms().fabric:
            self._fabric = ledger.rooms().fabric
            self._need_of_signature.clear()
        need = self._need_of_signature.get(line.signature)
        if need is None:
            spec = ledger.jobs[ledger.lines[line][0].job].spec
            need = self._need_of_signature[line.signature] = Need.of(ledger.rooms(), spec)
        return need

    def _room(self, ledger: Ledger, line: Line, held_gpus: int) -> tuple[int, int]:
        """How many slots are left over (below 0: too few), without and with room that is reserved."""
        rooms = ledger.rooms()
        need = self._need(ledger, line)
        if need.shape is None:
            most = int(rooms.free_gpus_in_domain(0)[0])
            return most - need.slots, most + held_gpus - need.slots
        table = slots_of(rooms, need.shape, need.shape.models)
        most = int(table.in_domain[need.tier].max())
        more = held_gpus // need.gpus if need.gpus else need.slots
        return most - need.slots, most + more - need.slots


def _reserved(ledger: Ledger) -> tuple[int, float]:
    """GPUs that are held for others, and the last moment until which a gang may use such room.

    inf where there are estimates: who goes before may use their room whenever it likes.
    """
    owners = ledger.rooms().owners
    held = sum(
        len(member.gpus) for owner, _ in ledger.held_places() for member in owners.get(owner, ())
    )
    until = [b.starts_at if b.promised else inf for b in ledger.bookings.values()]
    return held, max(until, default=0.0)
