"""Events of a journal as a simulation is told them: with its names of jobs, and on its time line.

Replayed is what users and operators asked and what the site told. Left out is what a cluster answered to orders (the
simulated one answers by itself), what time brought, and what is about records only. A request about an array goes to
each of its elements, which are jobs of their own in a replay.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gantree.model.events import (
    CancelRequested,
    ClusterObserved,
    CordonRequested,
    DefragmentRequested,
    Event,
    HealthObserved,
    HoldRequested,
    LabelRequested,
    LinkHealthObserved,
    LinkRestoreRequested,
    NodeLost,
    NodeReturned,
    OthersHold,
    PriorityRequested,
    ReleaseRequested,
    ScaleRequested,
    SuspendRequested,
    UncordonRequested,
)

ABOUT_JOBS = (
    CancelRequested, HoldRequested, ReleaseRequested, SuspendRequested, ScaleRequested, PriorityRequested,
    DefragmentRequested,
)  # fmt: skip
ABOUT_SITE = (
    ClusterObserved, CordonRequested, UncordonRequested, LabelRequested, HealthObserved, OthersHold, NodeLost,
    NodeReturned, LinkHealthObserved, LinkRestoreRequested,
)  # fmt: skip
REPLAYED = (*ABOUT_JOBS, *ABOUT_SITE)


def told(
    requests: Sequence[Event],
    id_of_job: Mapping[str, str],
    elements: Mapping[str, Sequence[str]],
    began_at: float,
) -> Iterator[Event]:
    """The requests, shifted so that began_at is 0; what was before comes at 0. Those about unknown jobs are dropped.

    id_of_job is the id in the simulation of each job, elements are the jobs of each array.
    """
    for event in requests:
        at = max(0.0, event.observed_at - began_at)
        shifted = _shifted(event, at, began_at)
        if not isinstance(event, ABOUT_JOBS):
            yield shifted
            continue
        for job in elements.get(event.job, (event.job,)):
            if job in id_of_job:
                named: Any = shifted
                yield replace(named, id=f"{event.id}/{job}", job=id_of_job[job])


def _shifted(event: Event, at: float, began_at: float) -> Event:
    if isinstance(event, CordonRequested) and event.deadline_at is not None:
        deadline_at = max(0.0, event.deadline_at - began_at)
        return replace(event, observed_at=at, occurred_at=None, deadline_at=deadline_at)
    if isinstance(event, DefragmentRequested):  # its plan is of other placements
        return replace(event, observed_at=at, occurred_at=None, placement=None, moves=())
    return replace(event, observed_at=at, occurred_at=None)
