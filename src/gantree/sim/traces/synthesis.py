"""A new trace, drawn from a distribution. Equal distribution, number, span and seed give equal jobs.

Jobs come independently of each other: a Poisson process with the rates of the hours, given its number of jobs. Each
draws its request by weight, and its duration from its size: by the inverse of the distribution function, between two
percents in proportion to the logarithm. So the share of a request among n jobs lies within 4 standard deviations,
4 sqrt(p (1 - p) / n), of its weight, and the distribution function of the durations of n jobs of a size within
0.01 + 2 / sqrt(n) of the given one, but for one trace in a thousand (Kolmogorov's bound is 1.95 / sqrt(n) there; 0.01
is the percent between two points).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil, expm1, log1p
from random import Random

from gantree.formats.traces import TraceJob
from gantree.formats.workload import Quantiles, Workload
from gantree.model.errors import BadInput
from gantree.sim.workload import gpus_of

HOUR_S = 3600
DIGITS = 3
"""Decimal places of seconds: what rounding of the last digit of a logarithm differs in is not seen."""
MAX_HOURS = 100 * 366 * 24


def synthesize(
    workload: Workload, seed: int, jobs: int | None = None, span_s: float | None = None
) -> Iterator[TraceJob]:
    """Draw so many jobs (None: as many as the workload has, in proportion to the span), in the order of submission.

    Raises BadInput for a request without durations, and for a span of over a hundred years.
    """
    length_s = workload.span_s if span_s is None else span_s
    if length_s > MAX_HOURS * HOUR_S:
        raise BadInput(f"a span of {length_s:g} s: at most a hundred years are drawn")
    count = round(workload.jobs * length_s / workload.span_s) if jobs is None else jobs
    requests = [job for job, _ in workload.requests]
    of_request = [_durations(workload, job) for job in requests]
    weights = list(accumulate(weight for _, weight in workload.requests))
    random = Random(seed)  # noqa: S311 - draws, not secrets
    moments_s = arrivals(workload.arrivals, length_s, count, random)
    return _jobs(random, moments_s, requests, of_request, weights)


def _jobs(
    random: Random,
    moments_s: Sequence[float],
    requests: Sequence[TraceJob],
    of_request: Sequence[Quantiles],
    weights: Sequence[float],
) -> Iterator[TraceJob]:
    for number, submit_s in enumerate(moments_s):
        (chosen,) = random.choices(range(len(requests)), cum_weights=weights)
        duration_s = round(at(of_request[chosen], random.random()), DIGITS)
        yield replace(
            requests[chosen], job_id=str(number), submit_s=submit_s, duration_s=duration_s
        )


def _durations(workload: Workload, job: TraceJob) -> Quantiles:
    found = workload.durations_of(gpus_of(job))
    if found is None:
        most = max(gpus for gpus, _ in workload.durations)
        raise BadInput(
            f"durations: a request has {gpus_of(job):g} GPUs; allowed: at most {most:g}, the most with durations"
        )
    return found


def at(points: Quantiles, share: float) -> float:
    """The seconds that a share of the jobs does not exceed; between two points in proportion to the logarithm."""
    percent = share * 100
    after = max(1, bisect_left(points, percent, key=lambda point: point[0]))
    (low, low_s), (high, high_s) = points[after - 1], points[min(after, len(points) - 1)]
    part = (percent - low) / (high - low) if high > low else 0.0
    return expm1(log1p(low_s) + (log1p(high_s) - log1p(low_s)) * part)


def arrivals(weights: Sequence[float], span_s: float, count: int, random: Random) -> list[float]:
    """Rising moments in seconds: so many, each in an hour by its weight, evenly within it; the last hour may be cut."""
    hours = ceil(span_s / HOUR_S)
    lengths_s = [min(HOUR_S, span_s - hour * HOUR_S) for hour in range(hours)]
    reached = list(
        accumulate(weights[hour % len(weights)] * length for hour, length in enumerate(lengths_s))
    )
    if not hours or reached[-1] <= 0:
        raise BadInput("arrivals: no hour of the span has a weight above 0")
    moments = []
    for drawn in sorted(random.random() * reached[-1] for _ in range(count)):
        hour = min(bisect_left(reached, drawn), hours - 1)
        before = reached[hour - 1] if hour else 0.0
        part = (drawn - before) / (reached[hour] - before)
        moments.append(round(hour * HOUR_S + part * lengths_s[hour], DIGITS))
    return moments
