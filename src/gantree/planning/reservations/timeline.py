"""The future of a cluster: which gangs end when, and from which time on a gang fits.

The occupancy is copied once. Gangs leave it in the order of their ends, and come back in the opposite order where the
search has gone too far; the shape indexes beside the copy follow its change log, so that a step costs what it touches.
What the occupancy has free when a set of gangs is gone only grows with the set, and more room never makes a gang fit
worse, so the earliest moment is found by steps that double and a bisection. (With nodes held back as spares that is not
quite so: a node that becomes wholly free may be held back. Then the moment found is one at which the gang fits and just
before which it does not, but an earlier one may exist.)

A reservation made earlier is here as an owner with a place. It holds what of its place is free, and takes the rest as
its owners leave, until it ends itself: no later gang is given room that is needed before it has ended its run.
Of a GPU of which others have parts now and the place has more than is left, it holds the rest (`Occupancy.take_free`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from itertools import pairwise
from math import inf
from operator import attrgetter, or_

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.refusal.on_empty import OnEmpty
from gantree.placement.request.anti_affinity import job_of
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.topology_request import topology_request_of
from gantree.topology.occupancy.gpus.gpu_state import REMAINDER
from gantree.topology.occupancy.node_room import NodeRoom, mask_of_gpus
from gantree.topology.occupancy.occupancy import Occupancy

Members = tuple[MemberPlacement, ...]


@dataclass(frozen=True, slots=True)
class Running:
    """A gang that holds room as `owner`, or will: ends_at is its end, in seconds; inf where it is not known.

    enforced: it is gone by then in any case (time limit and grace). place: for reservations and claims, the whole
    placement, of which they may hold a part or nothing yet.
    """

    owner: str
    ends_at: float
    enforced: bool
    place: Members = ()


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A start for a gang: when, where, and the owners that must have left for it, the first to end first.

    promised: each of these has an enforced end.
    """

    starts_at: float
    promised: bool
    placement: Placement
    waits_for: tuple[str, ...]


class Timeline:
    """Reservations on one occupancy. Changes of the occupancy after the making are not seen."""

    def __init__(
        self,
        occupancy: Occupancy,
        running: Iterable[Running],
        now: float,
        without: Iterable[str] = (),
    ) -> None:
        """The timeline from `now` on, without what the owners `without` hold: reservations to be made again.

        An owner that is not in `running` stays for ever. An end that has passed counts as now.
        """
        occupancy.emptied()  # kept there, and shared by all copies
        self._now = now
        self._room = occupancy.copy()
        self._leaving: list[Running] = []
        self._gone = 0
        self._held_now: dict[str, Members] = {}
        self._standing: dict[str, _Place] = {}
        self._ended: dict[str, _Place] = {}
        for owner in without:
            self._room.give_back(owner)
        self._enter(running)

    def add(self, one: Running) -> None:
        """Let a further owner with a place count from now on: a reservation just made."""
        self._go_to(0)
        self._enter((one,))

    def reserve(
        self, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
    ) -> PlannedStart | None:
        """As `planning.reservations.reserve.reserve`."""
        if not self._may_ever_fit(job) or not self._go_to_first_fit(job):
            return None
        placement = find(self._room, job, preferences)
        assert placement is not None, f"{job.name} fits and has no place"
        waits_for = self._waits_for(job, placement)
        return PlannedStart(
            self._moment(),
            all(one.enforced for one in waits_for),
            placement,
            tuple(one.owner for one in waits_for),
        )

    def _may_ever_fit(self, job: Job) -> bool:
        """Whether the empty, healthy fabric could hold the gang; cached. Not tested for slices of tori."""
        if job.topology.box is not None:
            return True
        return OnEmpty.of(self._room).holds(topology_request_of(self._room.fabric, job))

    # ----- forth and back

    def _enter(self, running: Iterable[Running]) -> None:
        """Add these ends; no gang has left yet."""
        for one in running:
            if one.place:
                self._standing[one.owner] = _Place.of(one.place)
                self._room.take_free(one.owner, one.place)
            if one.ends_at < inf:
                self._leaving.append(one)
            self._held_now[one.owner] = self._room.owners.get(one.owner, ())
        self._leaving.sort(key=attrgetter("ends_at"))

    def _moment(self) -> float:
        """The end of the last that is gone, or now."""
        last_end = self._leaving[self._gone - 1].ends_at if self._gone else self._now
        return max(last_end, self._now)

    def _go_to_first_fit(self, job: Job) -> bool:
        """Let as few leave as make the gang fit, in the order of their ends; False where all are too few."""
        stops = self._stops()
        too_few, step, most = -1, 0, len(stops) - 1
        while True:
            enough = min(too_few + 1 + step, most)
            self._go_to(stops[enough])
            if fits(self._room, job):
                break
            if enough == most:
                return False
            too_few, step = enough, 2 * step + 1
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            self._go_to(stops[middle])
            if fits(self._room, job):
                enough = middle
            else:
                too_few = middle
        self._go_to(stops[enough])
        return True

    def _stops(self) -> list[int]:
        """The number of gangs that have left, at each moment at which one leaves; now first."""
        ends = [one.ends_at for one in self._leaving]
        later = [number + 1 for number, (end, after) in enumerate(pairwise(ends)) if end < after]
        past = bisect_right(ends, self._now)
        return [past, *(number for number in [*later, len(ends)] if number > past)]

    def _go_to(self, gone: int) -> None:
        """Remove the first so many of the gangs that leave, and put the others back.

        The result depends on the number only: gangs that are there hold what they hold now, and placements in force
        what is free of them.
        """
        forth, back = self._leaving[self._gone : gone], self._leaving[gone : self._gone]
        nodes = self._nodes_of(forth if forth else back) if self._standing or self._ended else {}
        for one in forth:
            self._room.give_back(one.owner)
            if one.place:
                self._ended[one.owner] = self._standing.pop(one.owner)
        if back:
            self._let_go_of(nodes)
        for one in back:
            if one.place:
                self._standing[one.owner] = self._ended.pop(one.owner)
            elif self._held_now[one.owner]:
                self._room.take(one.owner, self._held_now[one.owner])
        for owner, place in self._standing.items():
            self._room.take_free(owner, place.on(nodes))
        self._gone = gone

    def _nodes_of(self, running: Iterable[Running]) -> dict[str, None]:
        """Nodes on which these hold something now, or have a place."""
        return {
            member.node: None
            for one in running
            for member in one.place or self._held_now[one.owner]
        }

    def _let_go_of(self, nodes: Mapping[str, None]) -> None:
        """Let places that stand hold nothing on these nodes."""
        for owner, place in self._standing.items():
            if place.on(nodes):
                held = self._room.owners.get(owner, ())
                self._hold_instead(owner, tuple(m for m in held if m.node not in nodes))

    # ----- who is in the way

    def _waits_for(self, job: Job, placement: Placement) -> list[Running]:
        """The gangs that have left and cannot stay beside the placement; the last to leave stay first."""
        needed = set(self._too_near(job, placement))
        changed = self._hold_as_now(placement)
        alone, beside = _Beside(self._room, placement), _Beside(self._room, placement)
        for one in reversed(self._leaving[: self._gone]):
            if one.owner in needed:
                continue
            may_come = not one.place or alone.has_room(one.place) is not None
            if not (may_come and beside.may_stay(self._held_now[one.owner])):
                needed.add(one.owner)
        self._hold_all_instead(changed)
        return [one for one in self._leaving[: self._gone] if one.owner in needed]

    def _hold_as_now(self, placement: Placement) -> list[tuple[str, Members]]:
        """Let places that stand on these nodes hold what they hold now, but no rests; return what they held instead."""
        nodes = dict.fromkeys(member.node for member in placement.members)
        there = [owner for owner, place in self._standing.items() if place.on(nodes)]
        changed = [(owner, self._room.owners.get(owner, ())) for owner in there]
        self._hold_all_instead([(owner, _but_rests(self._held_now[owner])) for owner in there])
        return changed

    def _hold_all_instead(self, holds: Iterable[tuple[str, Members]]) -> None:
        """Let these hold something else, all at once: what one has now may be what another one had."""
        holds = list(holds)
        for owner, _ in holds:
            self._room.give_back(owner)
        for owner, members in holds:
            self._hold_instead(owner, members)

    def _hold_instead(self, owner: str, members: Members) -> None:
        self._room.give_back(owner)
        self._room.take_free(owner, members)

    def _too_near(self, job: Job, placement: Placement) -> Iterator[str]:
        """The gangs that have left, from which the gang must be apart, and that held something in a domain of the
        placement.
        """
        fabric = self._room.fabric
        for request in topology_request_of(fabric, job).apart:
            tier = (
                fabric.tiers.index(request.tier)
                if request.tier in fabric.tiers
                else fabric.node_tier
            )
            domain_of_node = fabric.domain_of_node[tier]
            domains = {int(domain_of_node[fabric.index_of_node[m.node]]) for m in placement.members}
            for one in self._leaving[: self._gone]:
                if any(fnmatchcase(job_of(one.owner), pattern) for pattern in request.jobs) and any(
                    int(domain_of_node[fabric.index_of_node[m.node]]) in domains
                    for m in self._held_now[one.owner]
                ):
                    yield one.owner


@dataclass(frozen=True, slots=True)
class _Place:
    """A place by the names of its nodes."""

    members_of_node: Mapping[str, Sequence[MemberPlacement]]

    @classmethod
    def of(cls, members: Members) -> "_Place":
        """The place of these members."""
        return cls(_by_node(members))

    def on(self, nodes: Mapping[str, None]) -> list[MemberPlacement]:
        """The members on some of these nodes."""
        mine = self.members_of_node
        if len(nodes) < len(mine):
            return [member for node in nodes for member in mine.get(node, ())]
        return [member for node, here in mine.items() if node in nodes for member in here]


def _but_rests(members: Members) -> Members:
    """Without the rests that are kept: a place that was found has room beside what these are kept for."""
    return tuple(member for member in members if member.role != REMAINDER)


def _by_node(members: Members) -> dict[str, list[MemberPlacement]]:
    by_node: dict[str, list[MemberPlacement]] = {}
    for member in members:
        by_node.setdefault(member.node, []).append(member)
    return by_node


class _Beside:
    """The rest of the nodes of a placement, beside it and all that stays; counted when it is first needed."""

    def __init__(self, occupancy: Occupancy, placement: Placement) -> None:
        self._occupancy = occupancy
        self._place_of_node = _by_node(placement.members)
        self._gpus_of_node = {
            node: reduce(or_, [mask_of_gpus(member.gpus) for member in members])
            for node, members in self._place_of_node.items()
        }
        self._room_of_node: dict[str, NodeRoom] = {}

    def may_stay(self, members: Members) -> bool:
        """Whether there is room for these too, on nodes of the place; if so, it is used up."""
        rooms = self.has_room(members)
        self._room_of_node.update(rooms or {})
        return rooms is not None

    def has_room(self, members: Members) -> dict[str, NodeRoom] | None:
        """What these too would leave of the nodes of the place that they are on; None where there is no room."""
        here = [member for member in members if member.node in self._gpus_of_node]
        if any(mask_of_gpus(m.gpus) & self._gpus_of_node[m.node] for m in here):
            return None
        rooms: dict[str, NodeRoom] = {}
        for member in here:
            room = rooms.setdefault(member.node, replace(self._room(member.node)))
            if room.use_up(member):
                return None
        return rooms

    def _room(self, node: str) -> NodeRoom:
        if node not in self._room_of_node:
            room = self._occupancy.room_of_node(self._occupancy.fabric.index_of_node[node])
            for member in self._place_of_node[node]:
                problem = room.use_up(member)
                assert not problem, f"on {node} {problem}"
            self._room_of_node[node] = room
        return self._room_of_node[node]
