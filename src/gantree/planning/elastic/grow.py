"""Decides whether a running elastic gang grows into idle room: only if it pays.

Growing costs a start: all GPUs of the gang do nothing for a while, and what was done since its last checkpoint is done
again. It pays where the goodput that more members bring, over the time that the gang is expected to keep them, is more.
"""

from dataclasses import dataclass

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.sizes import goodputs
from gantree.placement.resize.elastic import grown, sizes_of
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Growth:
    """A larger place for a gang. gain_gpu_s: what it brings over the horizon less what the start costs."""

    placement: Placement
    gain_gpu_s: float


def plan_growth(
    occupancy: Occupancy,
    job: Job,
    placement: Placement,
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    most: int | None = None,
    *,
    horizon_s: float,
    restart_gpu_s: float = 0.0,
) -> Growth | None:
    """The larger legal size that gains most, with its placement; None where none fits or none pays.

    job is the gang that holds placement in the occupancy, as submitted or resized. most: the most members (by quota),
    None for the limit of `elastic`. horizon_s: seconds for which it is expected to keep the room. The gain is in
    GPU-seconds of work as the gang does it at its present size. Raises as `search.place`.
    """
    if len(job.roles) != 1 or job.topology.box is not None:
        return None
    now = len(placement.members)
    best: Growth | None = None
    for size in sizes_of(job):
        if size <= now or (most is not None and size > most):
            continue
        larger = grown(occupancy, job, placement, size, preferences)
        if larger is None:
            continue
        before, after = goodputs(job, [(now, placement), (size, larger)])
        gpus = sum(len(member.gpus) for member in placement.members)
        gain = (after / before - 1) * gpus * horizon_s - restart_gpu_s
        if gain > 0 and (best is None or gain > best.gain_gpu_s):
            best = Growth(larger, gain)
    return best
