"""Elastic gangs: the best size for the free room, and a placed gang grown or shrunk in place.

This is the door; the rooms behind it are

    sizes     which sizes a gang may have, what the job is at another one, which of several is best
    grown     new members beside those that stand
    shrunk    which members leave
    in_place  what both share: the gang gang, and its numbering

A gang is placed with the members that its job says where these fit. Where they do not, it starts smaller, down to
`elastic.min`, at the size of the most goodput; `elastic.max` is for growing later. A refusal is that of its smallest
size, the least that the cluster would have to hold. Nothing here changes the occupancy.
"""

from collections.abc import Sequence
from dataclasses import replace

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.choice.search import find, fits, place
from gantree.placement.request.placed_gang import kept_ranks
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.sizes import Priced, best_of, resized, sizes_of
from gantree.placement.resize.grown import grown
from gantree.placement.resize.shrunk import shrunk
from gantree.text.words import plural
from gantree.topology.occupancy.occupancy import Occupancy

__all__ = [
    "Priced",
    "best_size",
    "grown",
    "kept_ranks",
    "placed_elastically",
    "resized",
    "shrunk",
    "sizes_of",
]


def best_size(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Priced | None:
    """The best number of members between `elastic.min` and `elastic.max` for the room there is, and their place.

    None where not even the smallest has one. Raises as `search.place`.
    """
    return _best(occupancy, job, preferences, sizes_of(job))


def placed_elastically(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> tuple[Job, Placement | Refused]:
    """Place a job as it is written, or, where it is elastic and that does not fit, at the best smaller size.

    Returns the job of the size that it got, to launch and to number the ranks of; the job as it is written where it is
    refused, which then is at its smallest size too. Raises as `search.place`.
    """
    found = find(occupancy, job, preferences)
    if found is not None:
        return job, found
    smaller = [size for size in sizes_of(job) if size < job.members]
    if not smaller:
        return job, place(occupancy, job, preferences)
    best = _best(occupancy, job, preferences, smaller)
    if best is not None:
        return resized(job, best[0]), best[1]
    return job, _refused_at(occupancy, resized(job, smaller[0]), preferences)


def _refused_at(occupancy: Occupancy, smallest: Job, preferences: PlacementPreferences) -> Refused:
    """Why not even the smallest size has a place; a member that no machine holds is said of any size."""
    refused = place(occupancy, smallest, preferences)
    assert isinstance(refused, Refused), f"{smallest.members} members fit and were not found"
    if refused.gate is Gate.SHAPE:
        return refused
    verdict, colon, why = refused.sentence.partition(":")
    members = f"{plural(smallest.members, 'member')}"
    return replace(refused, sentence=f"{verdict}, even with {members}{colon}{why}")


def _best(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences, sizes: Sequence[int]
) -> Priced | None:
    return best_of(
        job,
        sizes,
        lambda each: fits(occupancy, each),
        lambda each: find(occupancy, each, preferences),
    )
