"""A gang on a slice of a torus: all of its members at once in one box, or a refusal that explains itself.

    torus_ask      what the job asks, and how members stand in a box of a shape
    torus_room     which cells of the tori are free for it
    torus_choice   which of the free boxes it gets
    torus_members  nodes, GPUs and NICs of each rank
    torus_refusal  why there is none, and what would help

`placement.choice.search` sends jobs with `topology.box` here; nothing here changes the occupancy.
"""

from gantree.model.errors import Unsupported
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.request.topology_request import TopologyRequest, topology_request_of
from gantree.placement.torus.choice import best_cut
from gantree.placement.torus.members import placement_of_cut
from gantree.placement.torus.refusal import explain_box
from gantree.placement.torus.request import Ask, read_ask
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


def place_on_torus(occupancy: Occupancy, job: Job) -> Placement | Refused:
    """Find the best slice for a job with `topology.box`, or say why there is none.

    Raises BadInput for a tier that is not there, Unsupported for requests that a box cannot carry.
    """
    ask, request = _read(occupancy.fabric, job)
    cut = best_cut(occupancy, ask, request)
    if cut is None:
        return explain_box(occupancy, ask, request)
    return placement_of_cut(occupancy, ask, request, cut)


def find_on_torus(occupancy: Occupancy, job: Job) -> Placement | None:
    """The best slice for a job, or None: `place_on_torus` without the reasons. Raises as it does."""
    ask, request = _read(occupancy.fabric, job)
    cut = best_cut(occupancy, ask, request)
    return None if cut is None else placement_of_cut(occupancy, ask, request, cut)


def fits_on_torus(occupancy: Occupancy, job: Job) -> bool:
    """Tell whether `place_on_torus` would find a place. Raises as it does."""
    return best_cut(occupancy, *_read(occupancy.fabric, job)) is not None


def _read(fabric: Fabric, job: Job) -> tuple[Ask, TopologyRequest]:
    """What is asked of the tori, and what else binds the gang."""
    ask, request = read_ask(job), topology_request_of(fabric, job)
    if request.together or request.roles[0].layers:
        raise Unsupported(
            f"job {job.name}: topology.required: a tier inside the node cannot be kept together with topology.box; "
            f"leave it out: GPUs that follow each other are neighbours in the box"
        )
    return ask, request
