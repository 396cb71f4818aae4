"""Where a gang goes: all of its members at once, as together as the fabric allows, or a refusal that explains itself.

    fewest domains of the widest tier, then of the next, down to fewest nodes (`placement.counting.solve`);
    where nodes are not alike to traffic or data, the place of the best price among these (`placement.choice.choice`);
    among these one on nodes that the gang likes (`placement.choice.affinity_tiebreak`);
    among equals the place that strands least: broken-up nodes and domains before whole ones; then topology order.

Which of a job's wishes is granted is in `placement.counting.preference_fallback`, slices of tori are placed by
`placement.torus.torus`, what a refusal says is in `placement.refusal.refusal`. Nothing here changes the occupancy.
"""

from collections.abc import Hashable

from gantree.model.jobs import Job, TopologyWish
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.affinity_tiebreak import Among, has_likes, limited, most_liked
from gantree.placement.choice.choice import best_place
from gantree.placement.choice.repeat_placement import placed_again
from gantree.placement.counting.preference_fallback import grantable, granted
from gantree.placement.refusal.refusal import explain
from gantree.placement.request.preferences import DEFAULT_PREFERENCES, PlacementPreferences
from gantree.placement.request.topology_request import read_wish
from gantree.placement.torus.torus import find_on_torus, fits_on_torus, place_on_torus
from gantree.topology.occupancy.occupancy import Occupancy


def place(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Placement | Refused:
    """Find the best place for a gang, or say why there is none.

    Raises BadInput for a tier or role that is not there, Unsupported for what this version cannot place.
    """
    if job.topology.box is not None:
        return place_on_torus(occupancy, job)
    found = find(occupancy, job, preferences)
    if found is None:
        return explain(occupancy, job, read_wish(occupancy.fabric, job))
    return found


def find(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Placement | None:
    """The best place for a gang, or None: `place` without the reasons. Raises as `place` does."""
    if job.topology.box is not None:
        return find_on_torus(occupancy, job)
    again = placed_again(occupancy, job, preferences)
    if again is not None:
        return again

    def best(among: Among) -> Placement | None:
        return granted(
            occupancy,
            job,
            lambda where, wish: best_place(where, limited(wish, among), job, preferences),
        )

    found = best({})
    if found is None or not has_likes(occupancy.fabric, job):
        return found
    return most_liked(occupancy, job, found, best)


def fits(occupancy: Occupancy, job: Job) -> bool:
    """Tell whether `place` would find a place. Raises as `place` does."""
    if job.topology.box is not None:
        return fits_on_torus(occupancy, job)
    return grantable(occupancy, read_wish(occupancy.fabric, job))


class Signature:
    """What a verdict depends on, to be compared: its hash is counted once, for the parts are deep."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self._parts == other._parts

    def __hash__(self) -> int:
        return self._hash


_LAST: dict[bool, tuple[Job, Signature]] = {}
"""The job that was signed last, of those that communicate and of others: those that are alike come together."""


def signature(job: Job) -> Signature:
    """What a verdict depends on: jobs of equal signature get the same one on the same occupancy."""
    known = _LAST.get(job.communicates)
    if known is not None and job.has_gang_of(known[0]):
        return known[1]
    roles = tuple(
        (r.name, r.members, r.processes, r.shape, _without_preferences(r.topology))
        for r in job.roles
    )
    signed = Signature((roles, _without_preferences(job.topology), job.communicates))
    _LAST[job.communicates] = (job, signed)
    return signed


def _without_preferences(topology: TopologyWish) -> Hashable:
    """A wish without what is only preferred, which changes where a gang goes, not whether."""
    binding = tuple(run for run in topology.slices if not run.preferred)
    return topology.required, binding, topology.spread, topology.apart, topology.box
