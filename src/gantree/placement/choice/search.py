"""Searches the place of a gang: all members at once, in as few domains as possible, or a refusal with its reasons.

    fewest domains of the widest tier, then of the next, down to fewest nodes (`placement.counting.solve`);
    if nodes differ in speed or in distance to data, the cheapest place of these (`placement.choice.choice`);
    among these the place of best node affinity (`placement.choice.affinity_tiebreak`);
    among equals the place that strands least: broken-up nodes and domains before whole ones; then topology order.

Preferences that do not fit are dropped step by step (`placement.counting.preferred_topology_fallback`). Slices of tori
are placed by `placement.torus.torus`; `placement.refusal.refusal` explains a refusal. A policy may have gangs placed
blindly instead (`placement.choice.blind`). Nothing here changes the occupancy.
"""

from collections.abc import Hashable

from gantree.model.jobs import Job, TopologySpec
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.affinity_tiebreak import (
    Among,
    best_by_affinity,
    has_affinity,
    limited_to_nodes,
)
from gantree.placement.choice.blind import place_blindly
from gantree.placement.choice.choice import best_place
from gantree.placement.choice.repeat_placement import repeat_placement
from gantree.placement.counting.preferred_topology_fallback import (
    has_place,
    place_as_requested,
    place_with_fallback,
)
from gantree.placement.refusal.refusal import explain
from gantree.placement.request.blind_rule import BlindRule
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.torus.torus import find_on_torus, fits_on_torus, place_on_torus
from gantree.topology.occupancy.occupancy import Occupancy


def place(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Placement | Refused:
    """Find the best place for a gang, or say why there is none.

    Raises BadInput for a tier or role that is not there, Unsupported for what this version cannot place.
    """
    if job.topology.box is not None:
        return place_on_torus(occupancy, job, BlindRule.of(preferences, job))
    found = find(occupancy, job, preferences)
    if found is None:
        return explain(occupancy, job, topology_request_of(occupancy.fabric, job))
    return found


def find(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Placement | None:
    """The best place for a gang, or None: `place` without the reasons. Raises as `place` does."""
    rule = BlindRule.of(preferences, job)
    if job.topology.box is not None:
        return find_on_torus(occupancy, job, rule)
    if rule is not None:
        request = topology_request_of(occupancy.fabric, job)
        return place_as_requested(
            occupancy, request, lambda where, evened: place_blindly(where, evened, job, rule)
        )
    again = repeat_placement(occupancy, job, preferences)
    if again is not None:
        return again

    def best(among: Among) -> Placement | None:
        return place_with_fallback(
            occupancy,
            job,
            lambda where, request: best_place(
                where, limited_to_nodes(request, among), job, preferences
            ),
        )

    found = best({})
    if found is None or not has_affinity(occupancy.fabric, job):
        return found
    return best_by_affinity(occupancy, job, found, best)


def fits(occupancy: Occupancy, job: Job) -> bool:
    """Tell whether `place` would find a place. Raises as `place` does."""
    if job.topology.box is not None:
        return fits_on_torus(occupancy, job)
    return has_place(occupancy, topology_request_of(occupancy.fabric, job))


class Signature:
    """What a verdict depends on, to be compared: its hash is computed once, for the parts are deep."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self._parts == other._parts

    def __hash__(self) -> int:
        return self._hash


_LAST: dict[bool, tuple[Job, Signature]] = {}
"""The last job with its signature, by whether it communicates: equal jobs come one after the other."""


def signature(job: Job) -> Signature:
    """What a verdict depends on: jobs of equal signature get the same verdict on the same occupancy."""
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


def _without_preferences(topology: TopologySpec) -> Hashable:
    """A topology without what is only preferred: that changes where a gang goes, not whether it fits."""
    binding = tuple(run for run in topology.slices if not run.preferred)
    apart = tuple(rule for rule in topology.apart if not rule.preferred)
    return topology.required, binding, topology.spread, apart, topology.box
