"""Places a gang on a slice of a torus: all of its members in one box, or a refusal with its reasons.

    request   the slice that the job requests, and how members are laid out in a box of a shape
    room      which cells of the tori are free for it
    choice    which of the free boxes it gets
    members   nodes, GPUs and NICs of each rank
    refusal   why there is none, and what would help

`placement.choice.search` sends jobs with `topology.box` here; nothing here changes the occupancy.
"""

from gantree.model.errors import Unsupported
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.request.blind_rule import BlindRule
from gantree.placement.request.topology_request import TopologyRequest, topology_request_of
from gantree.placement.torus.choice import best_slice
from gantree.placement.torus.members import placement_of_slice
from gantree.placement.torus.refusal import explain_box
from gantree.placement.torus.request import BoxRequest, box_request_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


def place_on_torus(
    occupancy: Occupancy, job: Job, rule: BlindRule | None = None
) -> Placement | Refused:
    """Find the best slice for a job with `topology.box`, or say why there is none.

    Raises BadInput for a tier that is not there, Unsupported for requests that a box cannot carry.
    """
    box_request, request = _read(occupancy.fabric, job)
    torus_slice = best_slice(occupancy, box_request, request, rule)
    if torus_slice is None:
        return explain_box(occupancy, box_request, request)
    return placement_of_slice(occupancy, box_request, request, torus_slice)


def find_on_torus(
    occupancy: Occupancy, job: Job, rule: BlindRule | None = None
) -> Placement | None:
    """The best slice for a job, or None: `place_on_torus` without the reasons. Raises as it does."""
    box_request, request = _read(occupancy.fabric, job)
    torus_slice = best_slice(occupancy, box_request, request, rule)
    return (
        None
        if torus_slice is None
        else placement_of_slice(occupancy, box_request, request, torus_slice)
    )


def fits_on_torus(occupancy: Occupancy, job: Job) -> bool:
    """Tell whether `place_on_torus` would find a place. Raises as it does."""
    return best_slice(occupancy, *_read(occupancy.fabric, job)) is not None


def _read(fabric: Fabric, job: Job) -> tuple[BoxRequest, TopologyRequest]:
    """The box that a job requests, and its other topology requests."""
    box_request, request = box_request_of(job), topology_request_of(fabric, job)
    if request.together or request.roles[0].layers:
        raise Unsupported(
            f"job {job.name}: topology.required: a tier inside the node cannot be kept together with topology.box; "
            f"leave it out: GPUs that follow each other are neighbours in the box"
        )
    return box_request, request
