"""Which sizes an elastic gang may have, what it is at another size, and which of several sizes is best.

A gang of one role has a size, the members of that role. Between `elastic.min` and `elastic.max` those sizes are left
that are whole slices and that can run: the ways of the parallelism multiply to the GPUs, and the batch divides evenly
over them. Of the ways only data grows and shrinks with the members; the others stay as they are written.

Best is the size of the most goodput, and of sizes within ALIKE of it the smallest, for more members would not pay:

    the job tells its model      samples a second: its batch, which stays as it is written, over its predicted step
    it tells traffic alone       members over the predicted step: what is told is what one rank does at any size
    it tells neither             members over an assumed step, of which communication takes UNTOLD_COMM_SHARE where the
                                 yardstick all-reduce is fastest, and more in proportion where it is slower
    members never talk           members

Few sizes of many are priced: the largest that fits, the largest that one domain of each tier holds (the next one leaves
it, so these are where a price jumps), and those halfway down from there.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm

from gantree.model.errors import BadInput
from gantree.model.jobs import AxisTraffic, Elastic, Job, Traffic
from gantree.model.placements import Placement
from gantree.placement.wish import slices_of
from gantree.topology.traffic import micro_batches, ways_of

ALIKE = 0.01
"""Share of the goodput by which a larger gang must be better: less than a prediction can tell."""

UNTOLD_COMM_SHARE = 0.2
"""Share of a step that communication takes at best where the job does not say: an assumption, not a measurement."""

MOST_PRICED = 16
"""Sizes of which all are priced; of more only those that the module names."""

Priced = tuple[int, Placement]
"""A size, and a place for it."""
Places = Callable[[Job], Placement | None]
Fits = Callable[[Job], bool]


def resized(job: Job, members: int) -> Job:
    """The job with so many members of its one role: data ways and, where it tells its model, each rank's share change.

    Raises BadInput for a gang of several roles, and for a size at which the data ways are not whole.
    """
    role, before = job.roles[0], job.roles[0].members
    if len(job.roles) != 1 or members < 1:
        raise BadInput(
            f"job {job.name}: {members} members: only a gang of one role has another size, of 1 member or more"
        )
    if members == before:
        return job
    traffic = job.traffic
    if traffic is not None and job.trains is not None:
        traffic = _shared(traffic, before / members)
    return replace(
        job,
        roles=(replace(role, members=members),),
        parallelism=tuple(_ways(job, axis, ways, members) for axis, ways in job.parallelism),
        traffic=traffic,
    )


def _ways(job: Job, axis: str, ways: int, members: int) -> tuple[str, int]:
    before = job.roles[0].members
    if axis != "data":
        return axis, ways
    if ways * members % before:
        raise BadInput(
            f"job {job.name}: {members} members: data {ways} of {before} members would become "
            f"{ways * members / before:g} ways; allowed: sizes at which they are whole"
        )
    return axis, ways * members // before


def _shared(traffic: Traffic, share: float) -> Traffic:
    """What each rank does of a batch that stays: all but its gradients, whose size does not depend on the ways."""
    axes = tuple(
        AxisTraffic(
            each.axis,
            each.size_bytes if each.axis == "data" else each.size_bytes * share,
            each.calls,
            each.collective,
        )
        for each in traffic.axes
    )
    compute_s = None if traffic.compute_s is None else traffic.compute_s * share
    return replace(traffic, axes=axes, compute_s=compute_s)


def sizes_of(job: Job) -> tuple[int, ...]:
    """Sizes that the job may have, rising; its own alone where it is not elastic or has several roles."""
    if job.elastic is None or len(job.roles) != 1 or job.topology.box:
        return (job.members,)
    written_runs = _runs(job)
    return tuple(
        size for size in _whole(job, job.elastic) if not written_runs or _runs_with(job, size)
    )


def _whole(job: Job, elastic: Elastic) -> range:
    step = lcm(*(run.members for run in slices_of(job, job.roles[0])))
    return range(-(-max(elastic.min, 1) // step) * step, elastic.max + 1, step)


def _runs_with(job: Job, members: int) -> bool:
    try:
        return _runs(resized(job, members))
    except BadInput:
        return False


def _runs(job: Job) -> bool:
    """Whether its ways multiply to its GPUs and its batch divides over them; True where it tells nothing of them."""
    if not job.gpus or not (job.parallelism or job.trains or job.traffic):
        return True
    try:
        micro_batches(job, ways_of(job, job.gpus))
    except BadInput:
        return False
    return True


def best_of(
    job: Job, sizes: Sequence[int], tiers: Sequence[str], fits: Fits, place: Places
) -> Priced | None:
    """Of these sizes of a job, rising, the best that has a place, with it; None where none has one.

    tiers are those of the fabric that a job may require, widest first.
    """
    if job.topology.box is not None:
        return _best_box(job, sizes, place)
    fitting = sizes[: _that_fit(job, sizes, fits)]
    if not fitting:
        return None
    chosen = fitting if len(fitting) <= MOST_PRICED else _few(job, fitting, tiers, fits)
    priced = [(size, found) for size in chosen if (found := place(resized(job, size)))]
    assert len(priced) == len(chosen), f"job {job.name}: some of {chosen} fit and have no place"
    return best_priced(job, priced)


def _best_box(job: Job, sizes: Sequence[int], place: Places) -> Priced | None:
    """Of boxes: a torus may hold a large one and no smaller one, for not every size has a legal shape."""
    priced = [(size, found) for size in sizes if (found := place(resized(job, size)))]
    return best_priced(job, priced) if priced else None


def _that_fit(job: Job, sizes: Sequence[int], fits: Fits) -> int:
    """How many of the sizes fit: what holds a size holds every smaller one."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(resized(job, sizes[middle - 1])):
            low = middle
        else:
            high = middle - 1
    return low


def _few(job: Job, sizes: Sequence[int], tiers: Sequence[str], fits: Fits) -> list[int]:
    """Those of many fitting sizes that are priced, rising."""
    chosen = {sizes[0], sizes[-1], *(size for size in sizes if size == job.members)}
    half = sizes[-1] // 2
    while half > sizes[0]:
        chosen.add(sizes[bisect_right(sizes, half) - 1])
        half //= 2
    for tier in _narrower(job, tiers):
        together = replace(job, topology=replace(job.topology, required=tier))
        count = _that_fit(together, sizes, fits)
        chosen.update(sizes[count - 1 : count])
    return sorted(chosen)


def _narrower(job: Job, tiers: Sequence[str]) -> Sequence[str]:
    """Tiers that are narrower than what the job requires anyway."""
    required = job.topology.required
    if required is None:
        return tiers
    return tiers[tiers.index(required) + 1 :] if required in tiers else ()


def best_priced(job: Job, priced: Sequence[Priced]) -> Priced:
    """The smallest of the sizes whose goodput is the most, or within ALIKE of it."""
    goodput = goodputs(job, priced)
    most = max(goodput)
    return next(
        each for each, here in zip(priced, goodput, strict=True) if here >= most * (1 - ALIKE)
    )


def goodputs(job: Job, priced: Sequence[Priced]) -> list[float]:
    """What each size does a second, in one unit for all of them; only ratios count."""
    if not job.communicates:
        return [float(size) for size, _ in priced]
    steps_s = [place.predicted.step_s for _, place in priced]
    told_s = [step_s for step_s in steps_s if step_s]
    if len(told_s) < len(priced):
        return _assumed(priced)
    if job.trains is not None:
        return [job.trains.batch / step_s for step_s in told_s]
    return [size / step_s for (size, _), step_s in zip(priced, told_s, strict=True)]


def _assumed(priced: Sequence[Priced]) -> list[float]:
    comms_s = [place.predicted.comm_s for _, place in priced]
    fastest_s = min((comm_s for comm_s in comms_s if comm_s), default=1.0)
    return [
        size / (1 - UNTOLD_COMM_SHARE + UNTOLD_COMM_SHARE * comm_s / fastest_s)
        for (size, _), comm_s in zip(priced, comms_s, strict=True)
    ]
