"""The earliest start of a pending gang, and its place: reservations, which are promises or estimates.

A reservation is a place and a moment. The moment is the earliest at which the gang fits when every gang leaves at the
end that is given for it; `planning.reservations.timeline` finds it. It is a promise where all gangs whose room the
place uses have an enforced end, else an estimate. What may run in the reserved room meanwhile is `may_backfill`; what
breaks a reservation is `slip_of`, and it is always something that happened: a node that was lost, a holder that stays
longer than was known.

Nothing here changes an occupancy. Who holds a reservation, when it is asked for anew, and what is recorded of it is
`core`'s.
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
    """The new reservation where it is earlier, or as early and promised where the old is not; else the old one.

    One that stands is kept while nothing better is found: no decision of ours makes it later.
    """
    if old is None or new is None:
        return new if old is None else old
    earlier = (new.starts_at, not new.promised) < (old.starts_at, not old.promised)
    return new if earlier else old


# ----- who may use reserved room meanwhile


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation that stands: what it is held under in the occupancy, and how often it has slipped."""

    owner: str
    reservation: PlannedStart
    slips: int = 0


def may_backfill(
    starts_at: float, ends_at: float, enforced: bool, *, promised: bool = True, slips: int = 0
) -> bool:
    """Whether a gang that would end at ends_at if it started now may use room reserved from starts_at on.

    With an enforced end, before any reservation. With one that is only estimated, before one that is only estimated
    itself and has not slipped yet: such a reservation is held up in this way once at most.
    """
    return ends_at <= starts_at and (enforced or not (promised or slips))


def passable(held: Sequence[Held], ends_at: float, enforced: bool) -> tuple[str, ...]:
    """The owners of reserved room that a gang may use which would end at ends_at if it started now."""
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
    """Whether a reservation held as `owner` still stands."""
    return slip_of(occupancy, owner, reservation, running, now) is None


def slip_of(
    occupancy: Occupancy,
    owner: str,
    reservation: PlannedStart,
    running: Iterable[Running],
    now: float,
) -> Slip | None:
    """Why a reservation held as `owner` does not stand any more; None where it does.

    It stands while its nodes are usable and all that holds something of its place is gone by its start: what has no end
    in `running` stays for ever, and where the start has come, whoever is there stays. Gangs that left early are fine.
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
