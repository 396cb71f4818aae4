"""What the jobs of a trace are like, as a distribution from which others are drawn (`formats.workload`).

Kept: what jobs ask for, all columns together (so that sizes, queues and models stay as they were to each other), except
users and limits; durations by size class at every percent; arrivals by hour of the week. Lost: which job came after
which, bursts within an hour, and who submitted what.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gantree.formats.traces import Trace, TraceJob
from gantree.formats.workload import (
    EVEN,
    HOURS_OF_DAY,
    HOURS_OF_WEEK,
    Quantiles,
    Workload,
)
from gantree.model.errors import BadInput
from gantree.sim.traces.sizes import size_class
from gantree.sim.workload import gpus_of

HOUR_S = 3600
PERCENTS = (*(float(percent) for percent in range(100)), 99.9, 100.0)
DIGITS = 3
"""Decimal places of seconds."""


def distribution_of(trace: Trace) -> Workload:
    """The distribution of a trace, read once. Raises BadInput for one without jobs, or with all of them at once."""
    span_s = trace.last_s - trace.first_s
    if span_s <= 0:
        raise BadInput("a trace needs jobs at two times at least to tell how they come")
    requests: Counter[TraceJob] = Counter()
    durations_s: dict[float, array[float]] = defaultdict(lambda: array("d"))
    by_hour = Counter[int]()
    for job in trace:
        requests[_request(job)] += 1
        durations_s[size_class(gpus_of(job))].append(job.duration_s)
        by_hour[int(job.submit_s // HOUR_S)] += 1
    return Workload(
        jobs=len(trace),
        span_s=span_s,
        requests=tuple((job, float(count)) for job, count in requests.items()),
        durations=tuple((bound, quantiles(durations_s[bound])) for bound in sorted(durations_s)),
        arrivals=rates(by_hour, trace.first_s, trace.last_s),
    )


def _request(job: TraceJob) -> TraceJob:
    """What a job asks for, without what is its own."""
    return replace(
        job, job_id="", submit_s=0.0, duration_s=0.0, user="", time_limit_s=None, expected_s=None
    )


def quantiles(values: Sequence[float]) -> Quantiles:
    """Values at PERCENTS of all, between neighbours in proportion."""
    ordered = sorted(values)
    last = len(ordered) - 1
    points = []
    for percent in PERCENTS:
        place = percent / 100 * last
        low = int(place)
        high = min(low + 1, last)
        value = ordered[low] + (ordered[high] - ordered[low]) * (place - low)
        points.append((percent, round(value, DIGITS)))
    return tuple(points)


def rates(by_hour: Mapping[int, int], first_s: float, last_s: float) -> tuple[float, ...]:
    """Jobs an hour in each hour of the week, of the day for less than a week; even for less than a day.

    by_hour has the jobs by hour since the start of the clock. The first and the last hour count with the part that lies
    between the first and the last submission.
    """
    hours = (last_s - first_s) / HOUR_S
    period = HOURS_OF_WEEK if hours >= HOURS_OF_WEEK else HOURS_OF_DAY
    if hours < HOURS_OF_DAY:
        return EVEN
    jobs, length_h = [0] * period, [0.0] * period
    for hour in range(int(first_s // HOUR_S), int(last_s // HOUR_S) + 1):
        jobs[hour % period] += by_hour.get(hour, 0)
        length_h[hour % period] += min(hour + 1, last_s / HOUR_S) - max(hour, first_s / HOUR_S)
    return tuple(
        round(count / length, DIGITS) if length else 0.0
        for count, length in zip(jobs, length_h, strict=True)
    )
