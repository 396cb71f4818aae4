"""Sizes of an elastic gang: which are allowed, the job at another size, and the best of several sizes.

A gang of one role has a size, the members of that role. Between `elastic.min` and `elastic.max` those sizes are left
that are whole slices and that can run: the ways of the parallelism multiply to the GPUs, and the batch divides evenly
over them. Of the ways only data grows and shrinks with the members; the others stay as they are written. A job that
does not run as it is written is held to whole data ways alone.

Best is the size of the most goodput, and of sizes within ALIKE of it the smallest, for more members would not pay:

    the job tells its model      samples a second: its batch, which stays as it is written, over its predicted step
    it tells traffic alone       members over the predicted step: what is told is what one rank does at any size
    it tells neither             members over an assumed step, of which communication takes UNTOLD_COMM_SHARE where the
                                 yardstick all-reduce is fastest, and more in proportion where it is slower
    members never talk           members

Up to MOST_PRICED sizes are all placed and priced. Of more it is every second, third, ... and the largest that fits,
then all around the best of these.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import lcm

from gantree.model.errors import BadInput
from gantree.model.jobs import Elastic, Job, Traffic
from gantree.model.placements import Placement
from gantree.placement.request.topology_request import slices_of
from gantree.text.words import plural
from gantree.topology.traffic.traffic import degrees_of, micro_batches

ALIKE = 0.01
"""Share of the goodput by which a larger gang must be better: less than a prediction can tell."""

UNTOLD_COMM_SHARE = 0.2
"""Share of a step that communication takes at best where the job does not say: an assumption, not a measurement."""

MOST_PRICED = 128
"""Sizes of which all are priced; a place of some dozens of members takes about half a millisecond."""

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
            f"job {job.name}: {plural(members, 'member')}: only a gang of one role has another size, "
            "of 1 member or more"
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
            f"job {job.name}: {plural(members, 'member')}: data {ways} of {plural(before, 'member')} would become "
            f"{ways * members / before:g} ways; allowed: sizes at which they are whole"
        )
    return axis, ways * members // before


def _shared(traffic: Traffic, share: float) -> Traffic:
    """What each rank does of a batch that stays: all but its gradients, whose size does not depend on the ways."""
    axes = tuple(
        each if each.axis == "data" else replace(each, size_bytes=each.size_bytes * share)
        for each in traffic.axes
    )
    compute_s = None if traffic.compute_s is None else traffic.compute_s * share
    return replace(traffic, axes=axes, compute_s=compute_s)


def sizes_of(job: Job) -> tuple[int, ...]:
    """Sizes that the job may have, rising; its own alone where it is not elastic or has several roles."""
    if job.elastic is None or len(job.roles) != 1 or job.topology.box:
        return (job.members,)
    must_run = _runs(job)
    return tuple(size for size in _whole(job, job.elastic) if _may_be(job, size, must_run=must_run))


def _whole(job: Job, elastic: Elastic) -> range:
    step = lcm(*(run.members for run in slices_of(job, job.roles[0])))
    return range(-(-max(elastic.min, 1) // step) * step, elastic.max + 1, step)


def _may_be(job: Job, members: int, *, must_run: bool) -> bool:
    try:
        other = resized(job, members)
    except BadInput:
        return False
    return not must_run or _runs(other)


def _runs(job: Job) -> bool:
    """Whether its ways multiply to its GPUs and its batch divides over them; True where it tells nothing of them."""
    if not job.gpus or not (job.parallelism or job.trains or job.traffic):
        return True
    try:
        micro_batches(job, degrees_of(job, job.gpus))
    except BadInput:
        return False
    return True


def best_of(job: Job, sizes: Sequence[int], fits: Fits, place: Places) -> Priced | None:
    """Of these sizes of a job, rising, the best that has a place, with it; None where none has one."""
    if job.topology.box is None:
        sizes = sizes[: _that_fit(job, sizes, fits)]
    step = max(1, -(-len(sizes) // MOST_PRICED))
    found: dict[int, Placement] = {}
    _price(job, (*sizes[::step], *sizes[-1:]), place, found)
    if not found:
        return None
    best, _ = _best_found(job, found)
    middle = sizes.index(best)
    _price(job, sizes[max(0, middle - step + 1) : middle + step], place, found)
    return _best_found(job, found)


def _best_found(job: Job, found: Mapping[int, Placement]) -> Priced:
    return best_priced(job, [(size, found[size]) for size in sorted(found)])


def _price(job: Job, sizes: Iterable[int], place: Places, found: dict[int, Placement]) -> None:
    """Find places of sizes that have none yet."""
    for size in sizes:
        placement = None if size in found else place(resized(job, size))
        if placement is not None:
            found[size] = placement


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
