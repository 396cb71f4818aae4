"""Where a gang goes: all of its members at once, as together as the fabric allows, or a refusal that explains itself.

    fewest domains of the widest tier, then of the next, down to fewest nodes: exactly (`placement.exact`);
    among those the place that strands least: broken-up nodes and domains before whole ones; then topology order.

Which GPU models are tried first is in `placement.solve`, what a refusal says in `placement.refusal`. Nothing here
changes the occupancy.
"""

from collections.abc import Hashable

from gantree.model.jobs import Job, TopologyWish
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.members import placement_of
from gantree.placement.refusal import explain
from gantree.placement.solve import solvable, solve
from gantree.placement.wish import read_wish
from gantree.topology.occupancy import Occupancy


def place(occupancy: Occupancy, job: Job) -> Placement | Refused:
    """Find the best place for a gang, or say why there is none.

    Raises BadInput for a tier or role that is not there, Unsupported for what this version cannot place.
    """
    wish = read_wish(occupancy.fabric, job)
    found = solve(occupancy, wish)
    if found is None:
        return explain(occupancy, job, wish)
    return placement_of(*found, job)


def find(occupancy: Occupancy, job: Job) -> Placement | None:
    """The best place for a gang, or None: `place` without the reasons. Raises as `place` does."""
    found = solve(occupancy, read_wish(occupancy.fabric, job))
    return None if found is None else placement_of(*found, job)


def fits(occupancy: Occupancy, job: Job) -> bool:
    """Tell whether `place` would find a place. Raises as `place` does."""
    return solvable(occupancy, read_wish(occupancy.fabric, job))


def signature(job: Job) -> Hashable:
    """What a verdict depends on: jobs of equal signature get the same one on the same occupancy."""
    roles = tuple((r.name, r.members, r.shape, _without_taste(r.topology)) for r in job.roles)
    return roles, _without_taste(job.topology)


def _without_taste(topology: TopologyWish) -> Hashable:
    """A wish without `preferred`, which every search tries for anyway."""
    return topology.required, topology.slices
