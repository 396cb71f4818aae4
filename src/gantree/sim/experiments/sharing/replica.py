"""Replicas of inference on whole GPUs and on parts: what load each bears, and how many a day needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, cos, pi
from random import Random

from gantree.formats.traces import TraceJob
from gantree.sim.experiments.experiment import mean
from gantree.sim.experiments.inputs import figures
from gantree.sim.experiments.sharing.gpu_queue import (
    on_partition,
    partition_rate,
    percentile,
    poisson,
    side_by_side,
)

STEP_S = 900
"""Seconds after which the number of replicas may change."""

DAY_S = 86_400
QUIETEST_S = 4 * 3600
"""The time of the day with the fewest requests; the most come twelve hours later."""

REQUESTS = 48_000
"""Requests of a replica on a whole GPU, and of all on one GPU, from which a p99 is taken."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a replica gets of a GPU: all of it, a share under MPS, or a MIG instance; per_gpu fit on one."""

    name: str
    per_gpu: int
    share: float | None = None
    mig: str | None = None
    compute: float = 1.0


WHOLE = Part("a whole GPU", 1)
PARTS = (
    WHOLE,
    Part("1/2 under MPS", 2, share=0.5),
    Part("1/3 under MPS", 3, share=0.33),
    Part("1/4 under MPS", 4, share=0.25),
    Part("MIG 3g.40gb", 2, mig="3g.40gb", compute=3 / 7),
    Part("MIG 2g.20gb", 3, mig="2g.20gb", compute=2 / 7),
)


def sharing_figure(name: str) -> float:
    """Return the likeliest figure of inputs/gpu-sharing.csv."""
    return figures("gpu-sharing")[name].value


def p99_of(part: Part, load: float, seed: int) -> float:
    """Return the p99 of replicas that fill a GPU, all at one load, over the time of a request alone."""
    width, cv = sharing_figure("width"), sharing_figure("work_cv")
    count = REQUESTS if part.share is None else REQUESTS // part.per_gpu
    streams = [
        poisson(load, count, cv, Random(100 * seed + number))  # noqa: S311 - no secret
        for number in range(part.per_gpu if part.share else 1)
    ]
    if part.share is None:
        return percentile(on_partition(streams[0], partition_rate(part.compute, width)), 99)
    found = side_by_side(streams, width)
    return percentile([time for times in zip(*found, strict=True) for time in times], 99)


def mean_p99(part: Part, load: float, seeds: tuple[int, ...]) -> float:
    """Return the mean over seeds of p99_of."""
    return mean([p99_of(part, load, seed) for seed in seeds])


def highest_load(part: Part, p99: float, seeds: tuple[int, ...]) -> float:
    """Return the highest load at which the p99 of a full GPU stays at a bound; found by halving, to 0.004."""
    low, high = 0.0, min(1.0, 1 / (part.per_gpu * sharing_figure("width")))
    if part.share is None:
        high = partition_rate(part.compute, sharing_figure("width"))
    while high - low > 0.004:
        middle = (low + high) / 2
        if mean_p99(part, middle, seeds) <= p99:
            low = middle
        else:
            high = middle
    return low


def demand(at_s: float, trough: float) -> float:
    """Return the requests of a moment over those of the peak: a cosine over the day."""
    return trough + (1 - trough) * (1 - cos(2 * pi * (at_s - QUIETEST_S) / DAY_S)) / 2


def replicas_at(at_s: float, busy: float, load: float, trough: float) -> int:
    """Return how many replicas a moment needs: busy is what the peak keeps busy of replicas alone, load is of each."""
    return ceil(busy * demand(at_s, trough) / load - 1e-9)


def replica_rows(
    part: Part, busy: float, load: float, days: int, trough: float
) -> Iterator[TraceJob]:
    """Return the replicas of some days as rows of a trace: each runs for as long as it is wanted."""
    wanted = [replicas_at(at_s, busy, load, trough) for at_s in range(0, days * DAY_S, STEP_S)]
    for number in range(max(wanted)):
        since: int | None = None
        for place, count in enumerate([*wanted, 0]):
            if count > number and since is None:
                since = place
            elif count <= number and since is not None:
                yield _row(part, number, since, place)
                since = None


def _row(part: Part, number: int, since: int, until: int) -> TraceJob:
    return TraceJob(
        job_id=f"r{number}-{since}",
        submit_s=float(since * STEP_S),
        duration_s=float((until - since) * STEP_S),
        members=1,
        gpus_per_member=int(part is WHOLE),
        queue="serving",
        priority="serving",
        preemptible=False,
        gpu_share=part.share,
        mig=part.mig,
    )
