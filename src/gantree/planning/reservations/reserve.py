"""The earliest start of a pending gang, and its placement: reservations, which are promises or estimates.

A reservation is a placement and a moment: the earliest at which the gang fits if every gang leaves at its given end
(`planning.reservations.timeline`). It is a promise if all gangs whose room it uses have an enforced end, else an
estimate. `may_backfill` decides which gangs may run in the reserved room meanwhile. `slip_of` decides what breaks a
reservation: always an event, as a lost node or a gang that stays longer than known.

Nothing here changes an occupancy. `core` decides which gangs have a reservation, when it is made again, and what is
recorded of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.reservations.timeline import PlannedStart, Running, Timeline
from gantree.topology.occupancy.occupancy import Occupancy

__all__ = [
    "Held",
    "PlannedStart",
    "Running",
    "Slip",
    "Timeline",
    "better",
    "may_backfill",
    "passable",
    "promise_and_estimate",
    "reserve",
    "slip_of",
    "still_true",
]


def reserve(
    occupancy: Occupancy,
    job: Job,
    running: Iterable[Running],
    now: float,
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    without: Iterable[str] = (),
) -> PlannedStart | None:
    """The earliest place of a gang when others leave at their ends; None where it has none even then.

    Earlier reservations are in `running` with the places they are to have; what the owners `without` hold counts as
    free (the gang's own reservation, to be made anew). For several gangs on one occupancy
    a `Timeline` is quicker. Raises BadInput and Unsupported as `placement.choice.search.find` does.
    """
    return Timeline(occupancy, running, now, without).reserve(job, preferences)


def promise_and_estimate(
    occupancy: Occupancy,
    job: Job,
    limits: Iterable[Running],
    estimates: Iterable[Running],
    now: float,
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    without: Iterable[str] = (),
) -> tuple[PlannedStart | None, PlannedStart | None]:
    """(the promised start, the estimated one where it is earlier): each None where there is none.

    limits are the gangs with their enforced ends (inf where they have none), estimates the same gangs with the ends
    that they probably have.
    """
    promise = reserve(occupancy, job, limits, now, preferences, without)
    estimate = reserve(occupancy, job, estimates, now, preferences, without)
    return promise, estimate if better(promise, estimate) is estimate else None


def better(old: PlannedStart | None, new: PlannedStart | None) -> PlannedStart | None:
    """The new reservation if it is earlier, or as early and promised where the old one is not; else the old one.

    A reservation is kept until a better one is found: no decision makes it later.
    """
    if old is None or new is None:
        return new if old is None else old
    earlier = (new.starts_at, not new.promised) < (old.starts_at, not old.promised)
    return new if earlier else old


# ----- who may use reserved room meanwhile


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation in force: its owner in the occupancy, and how often it has slipped."""

    owner: str
    reservation: PlannedStart
    slips: int = 0


def may_backfill(
    starts_at: float, ends_at: float, enforced: bool, *, promised: bool = True, slips: int = 0
) -> bool:
    """Whether a gang that would end at ends_at if it started now may use room reserved from starts_at on.

    A gang with an enforced end may, before any reservation. A gang with an estimated end may before an estimate that
    has not slipped yet: so such a reservation is delayed by this at most once.
    """
    return ends_at <= starts_at and (enforced or not (promised or slips))


def passable(held: Sequence[Held], ends_at: float, enforced: bool) -> tuple[str, ...]:
    """The owners of reserved room that a gang may use if it would end at ends_at when started now."""
    return tuple(
        one.owner
        for one in held
        if may_backfill(
            one.reservation.starts_at,
            ends_at,
            enforced,
            promised=one.reservation.promised,
            slips=one.slips,
        )
    )


# ----- whether a reservation stands


@dataclass(frozen=True, slots=True)
class Slip:
    """Why a reservation does not stand: a node (or a NIC of it) that is lost, or a holder that is not gone by then.

    kind is "node": `by` is the node; "late": `by` is a gang it waited for, which stays longer than was known; "taken":
    `by` is another owner, which went first.
    """

    kind: Literal["node", "late", "taken"]
    by: str

    @property
    def sentence(self) -> str:
        """The cause in words."""
        if self.kind == "node":
            return f"node {self.by} was lost"
        if self.kind == "late":
            return f"{self.by} runs longer than it was to"
        return f"{self.by} went first"


def still_true(
    occupancy: Occupancy,
    owner: str,
    reservation: PlannedStart,
    running: Iterable[Running],
    now: float,
) -> bool:
    """Whether a reservation held as `owner` is in force."""
    return slip_of(occupancy, owner, reservation, running, now) is None


def slip_of(
    occupancy: Occupancy,
    owner: str,
    reservation: PlannedStart,
    running: Iterable[Running],
    now: float,
) -> Slip | None:
    """What breaks a reservation held as `owner`; None while it is in force.

    It is in force while its nodes are usable and all owners on its room leave before its start. An owner without an end
    in `running` stays for ever; once the start has come, every owner there stays. Gangs that left early do no harm.
    """
    lost = _lost(occupancy, reservation.placement.members)
    if lost is not None:
        return Slip("node", lost)
    ends_at = {one.owner: max(one.ends_at, now) for one in running}
    stays = _stays(occupancy, owner, reservation, ends_at)
    return _in_the_way(occupancy, reservation, stays)


def _lost(occupancy: Occupancy, members: Sequence[MemberPlacement]) -> str | None:
    """A node of a place that is not there, not usable, or on which a NIC of the place is broken."""
    for member in members:
        node = occupancy.fabric.index_of_node.get(member.node)
        if node is None or not occupancy.usable_node[node]:
            return member.node
        broken = occupancy.host.broken_nic_mask_of_node.get(node, 0)
        machine = occupancy.fabric.machine_of_node(node)
        if broken and any(
            broken >> bit & 1 and nic.name in member.nics for bit, nic in enumerate(machine.nics)
        ):
            return member.node
    return None


def _stays(
    occupancy: Occupancy, owner: str, reservation: PlannedStart, ends_at: Mapping[str, float]
) -> dict[str, list[tuple[str, MemberPlacement]]]:
    """Node of the place -> (owner, member) of all that holds something there and is not gone by the start."""
    stays: dict[str, list[tuple[str, MemberPlacement]]] = {
        member.node: [] for member in reservation.placement.members
    }
    for other, members in occupancy.owners.items():
        end = ends_at.get(other)
        if other == owner or (end is not None and end <= reservation.starts_at):
            continue
        for member in members:
            if member.node in stays:
                stays[member.node].append((other, member))
    return stays


def _in_the_way(
    occupancy: Occupancy,
    reservation: PlannedStart,
    stays: Mapping[str, Sequence[tuple[str, MemberPlacement]]],
) -> Slip | None:
    """The first holder that leaves too little for the place on one of its nodes."""
    members_of_node: dict[str, list[MemberPlacement]] = {}
    for member in reservation.placement.members:
        members_of_node.setdefault(member.node, []).append(member)
    empty = occupancy.emptied()
    for node, members in members_of_node.items():
        if not stays[node]:
            continue
        room = empty.room_of_node(occupancy.fabric.index_of_node[node], recut=True)
        for member in members:
            room.use_up(member)
        for other, member in stays[node]:
            if room.use_up(member):
                return Slip("late" if other in reservation.waits_for else "taken", other)
    return None
