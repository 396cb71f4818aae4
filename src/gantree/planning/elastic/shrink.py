"""Plans which elastic gangs shrink so that another gang fits: the least loss of goodput, with a proof of fit.

A gang that shrinks restarts with fewer members, so few gangs should shrink by more rather than many by a little. Each
gang alone is tried, and gangs together in the order of their loss for each GPU that they give back; domain by domain,
if the pending gang must be in one. Then each gang gets back as many members as it can keep.

The members that leave are those in the wanted domain first, on the nodes that become emptiest. If that breaks the
gang's own topology request, `placement.resize.shrunk` chooses. Members that stay do not move.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.request.placed_gang import PlacedGang
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.sizes import goodputs, resized
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.resize.elastic import shrunk, sizes_of
from gantree.topology.occupancy.occupancy import Occupancy

MOST_ALONE = 32
"""Gangs that are tried on their own in a domain."""
MOST_DOMAINS = 32
"""Domains that are tried, those that are least short of GPUs first."""


@dataclass(frozen=True, slots=True)
class ElasticGang:
    """A running gang that can give members back.

    owner is its name in the occupancy, job as it was submitted or resized, placement what it holds. right as that of
    `preempt.Victim`: the least right shrinks first. restart_gpu_s are the GPU-seconds that a new start costs it,
    least the size below which it is not shrunk (None: its smallest legal one).
    """

    owner: str
    job: Job
    placement: Placement
    right: tuple[float, ...] = ()
    restart_gpu_s: float = 0.0
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A gang's smaller place. lost_gpus: the goodput it misses from now on, in GPUs as it used them before."""

    owner: str
    placement: Placement
    lost_gpus: float
    restart_gpu_s: float


@dataclass(frozen=True, slots=True)
class ShrinkPlan:
    """A proven placement, and the gangs that shrink for it."""

    placement: Placement
    shrunk: tuple[Shrunk, ...]

    @property
    def lost_gpus(self) -> float:
        """Goodput that is missing from now on, in GPUs."""
        return sum(each.lost_gpus for each in self.shrunk)

    @property
    def restart_gpu_s(self) -> float:
        """GPU-seconds that the new starts cost, once."""
        return sum(each.restart_gpu_s for each in self.shrunk)


def plan_shrink(
    occupancy: Occupancy,
    job: Job,
    elastic: Sequence[ElasticGang],
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
) -> ShrinkPlan | None:
    """The plan that costs least goodput among those tried, or None if none of them makes room.

    occupancy is left as it is and holds each gang under its owner's name. Gangs that cannot be resized where they are
    (several roles, slices of a torus) are passed over. Raises as `search.place`.
    """
    trial = _Trial(occupancy, job)
    if trial.fits():
        return trial.plan({}, preferences)
    sized = {gang.owner: sizes for gang in elastic if (sizes := _smaller_sizes(gang))}
    gangs = [gang for gang in elastic if gang.owner in sized]
    found = [
        made
        for nodes in _domains(occupancy, job, gangs)
        for made in _enough(trial, nodes, gangs, sized)
    ]
    if not found:
        return None
    return trial.plan(min(found, key=lambda made: _harm(made, gangs)), preferences)


_Harm = tuple[tuple[float, ...], float, float, int]
"""(the greatest right that suffers, goodput lost in GPUs, GPU-seconds of starts, gangs)."""


def _harm(made: Mapping[str, Shrunk], gangs: Sequence[ElasticGang]) -> _Harm:
    right = max((gang.right for gang in gangs if gang.owner in made), default=())
    lost_gpus = sum(each.lost_gpus for each in made.values())
    return right, lost_gpus, sum(each.restart_gpu_s for each in made.values()), len(made)


def _smaller_sizes(gang: ElasticGang) -> list[int]:
    """Legal sizes below the one that a gang has, rising; none for a gang that cannot be resized in place."""
    if len(gang.job.roles) != 1 or gang.job.topology.box is not None:
        return []
    now, least = len(gang.placement.members), gang.least or 1
    return [size for size in sizes_of(gang.job) if least <= size < now]


class _Trial:
    """A copy of the occupancy in which gangs shrink and grow back, and whether the pending gang fits there."""

    def __init__(self, occupancy: Occupancy, job: Job) -> None:
        self.room, self.job = occupancy.copy(), job
        self._before: dict[str, Sequence[MemberPlacement]] = {}

    def fits(self) -> bool:
        return fits(self.room, self.job)

    def hold(self, made: Mapping[str, Shrunk]) -> None:
        """Let exactly these be smaller; all others are as they were."""
        for owner, members in self._before.items():
            self.room.give_back(owner)
            self.room.take(owner, members)
        self._before = {owner: self.room.owners[owner] for owner in made}
        for owner, each in made.items():
            self.room.give_back(owner)
            self.room.take(owner, each.placement.members)

    def plan(self, made: Mapping[str, Shrunk], preferences: PlacementPreferences) -> ShrinkPlan:
        self.hold(made)
        placement = find(self.room, self.job, preferences)
        assert placement is not None, "a gang that fits has no place"
        return ShrinkPlan(placement, tuple(made.values()))


# ----- where


def _domains(
    occupancy: Occupancy, job: Job, gangs: Sequence[ElasticGang]
) -> Iterator[Mapping[int, None]]:
    """The nodes of each domain that could hold the pending gang, those with the fewest missing GPUs first; else the
    fabric.
    """
    fabric = occupancy.fabric
    tier = 0 if job.topology.box is not None else topology_request_of(fabric, job).whole_at
    of_node = fabric.domain_of_node[tier]
    give_back: dict[int, int] = {}
    for gang in gangs:
        for member in gang.placement.members:
            domain = int(of_node[fabric.index_of_node[member.node]])
            give_back[domain] = give_back.get(domain, 0) + len(member.gpus)
    free = occupancy.free_gpus_in_domain(tier)
    enough = [d for d, gpus in give_back.items() if gpus + int(free[d]) >= job.gpus]
    first = fabric.first_node_of_domain[tier]
    for domain in sorted(enough, key=lambda d: (job.gpus - int(free[d]), d))[:MOST_DOMAINS]:
        yield dict.fromkeys(range(int(first[domain]), int(first[domain + 1])))


# ----- who


def _enough(
    trial: _Trial,
    nodes: Mapping[int, None],
    gangs: Sequence[ElasticGang],
    sized: Mapping[str, Sequence[int]],
) -> Iterator[dict[str, Shrunk]]:
    """Ways to make room in a domain: each gang alone, and gangs together; thinned out."""
    trial.hold({})
    smallest = {
        gang.owner: _smaller(trial.room, gang, sized[gang.owner][0], nodes)
        for gang in gangs
        if any(_node(trial.room, member) in nodes for member in gang.placement.members)
    }
    ranked = sorted(
        (gang for gang in gangs if gang.owner in smallest),
        key=lambda gang: (gang.right, _per_gpu(gang, smallest[gang.owner])),
    )
    together: dict[str, Shrunk] = {}
    for number, gang in enumerate(ranked):
        alone = {gang.owner: smallest[gang.owner]}
        trial.hold(alone)
        if number < MOST_ALONE and trial.fits():
            yield _thinned(trial, nodes, alone, ranked, sized)
        together |= alone
        trial.hold(together)
        if trial.fits():
            yield _thinned(trial, nodes, together, ranked, sized)
            return


def _per_gpu(gang: ElasticGang, smallest: Shrunk) -> float:
    """Goodput lost for each GPU that a gang gives back at its smallest."""
    return smallest.lost_gpus / max(1, _gpus(gang.placement) - _gpus(smallest.placement))


def _thinned(
    trial: _Trial,
    nodes: Mapping[int, None],
    enough: Mapping[str, Shrunk],
    ranked: Sequence[ElasticGang],
    sized: Mapping[str, Sequence[int]],
) -> dict[str, Shrunk]:
    """Each gang as large as it can be kept, the one with the most to lose first; whole ones are left out."""
    made = dict(enough)
    for gang in reversed([gang for gang in ranked if gang.owner in enough]):
        others = {owner: each for owner, each in made.items() if owner != gang.owner}
        trial.hold(others)
        if trial.fits():
            made = others
            continue
        sizes = sized[gang.owner]
        fit, too_large = 0, len(sizes)
        while too_large - fit > 1:
            middle = (fit + too_large) // 2
            trial.hold(others)
            larger = _smaller(trial.room, gang, sizes[middle], nodes)
            trial.hold(others | {gang.owner: larger})
            if trial.fits():
                made[gang.owner], fit = larger, middle
            else:
                too_large = middle
    return made


# ----- which members leave


def _smaller(room: Occupancy, gang: ElasticGang, size: int, nodes: Mapping[int, None]) -> Shrunk:
    """A gang with so many members, of which those on these nodes leave first."""
    placed = PlacedGang.of(room.fabric, gang.job, gang.placement)
    place = _leaving_first(room, placed, size, nodes)
    if place is None:
        place = shrunk(room, gang.job, gang.placement, size)
    now = len(gang.placement.members)
    before, after = goodputs(gang.job, [(now, gang.placement), (size, place)])
    lost_gpus = _gpus(gang.placement) * (1 - after / before)
    return Shrunk(gang.owner, place, lost_gpus, gang.restart_gpu_s)


def _leaving_first(
    room: Occupancy, gang: PlacedGang, size: int, nodes: Mapping[int, None]
) -> Placement | None:
    """Members on these nodes leave, from nodes that become emptiest; None if that breaks the gang's requests."""
    smaller_job = resized(gang.job, size)
    leave = gang.size - size
    kept = dict(gang.of_node)
    for node in sorted(kept, key=lambda n: (n not in nodes, -_free_then(room, gang, n), n)):
        members = kept[node]
        left = min(leave, len(members))
        kept[node] = members[: len(members) - left]
        leave -= left
    place = gang.with_members(smaller_job, {node: there for node, there in kept.items() if there})
    smaller = PlacedGang.of(room.fabric, smaller_job, place)
    return place if any(True for _ in smaller.requests_at(smaller_job)) else None


def _free_then(room: Occupancy, gang: PlacedGang, node: int) -> int:
    """GPUs of a node that are free when the gang is gone."""
    held = room.free_gpus_of_node[node]
    return int(held) + sum(len(member.gpus) for member in gang.of_node[node])


def _node(room: Occupancy, member: MemberPlacement) -> int:
    return room.fabric.index_of_node[member.node]


def _gpus(placement: Placement) -> int:
    return sum(len(member.gpus) for member in placement.members)
