"""What is in a trace: jobs, GPU-hours, sizes, durations, queues and arrivals.

A trace is read once, job by job; of each job its duration is kept, 8 bytes, for exact percentiles. GPU-hours are GPUs
times duration, as if every job ran undisturbed; parts of GPUs count as parts. Percentiles are by nearest rank.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from gantree.formats.traces import Trace, TraceJob
from gantree.sim.results import DIGITS, nearest_rank
from gantree.sim.traces.sizes import name_of, size_class
from gantree.sim.workload import gpus_of

HOUR_S = 3600
HOURS_OF_DAY, DAYS_OF_WEEK = 24, 7
PERCENTS = (10, 50, 90, 99)


class _Jobs:
    """Some jobs of a trace: how many, their GPU-seconds, their durations."""

    def __init__(self) -> None:
        self.gpu_s = 0.0
        self.durations_s = array("d")

    def add(self, job: TraceJob, gpus: float) -> None:
        self.gpu_s += gpus * job.duration_s
        self.durations_s.append(job.duration_s)

    def told(self, jobs: int, gpu_s: float) -> dict[str, Any]:
        """Counts and shares of all jobs and of all GPU-hours, and durations."""
        count = len(self.durations_s)
        return {
            "jobs": count,
            "job_share": round(count / jobs, DIGITS),
            "gpu_hours": round(self.gpu_s / HOUR_S, DIGITS),
            "gpu_hours_share": round(self.gpu_s / gpu_s, DIGITS) if gpu_s else 0.0,
            "duration_s": durations(self.durations_s),
        }


def durations(values: Iterable[float]) -> dict[str, float | None]:
    """Mean, PERCENTS and the longest, in seconds; None of nothing."""
    ordered = sorted(values)
    return {
        "mean": round(sum(ordered) / len(ordered), DIGITS) if ordered else None,
        **{f"p{percent}": nearest_rank(ordered, percent) for percent in PERCENTS},
        "max": round(ordered[-1], DIGITS) if ordered else None,
    }


def describe(trace: Trace) -> dict[str, Any]:
    """The description of a trace, as docs/schemas/trace-describe-output.schema.json has it."""
    everything = _Jobs()
    of_class: dict[float, _Jobs] = defaultdict(_Jobs)
    of_queue: dict[str, _Jobs] = defaultdict(_Jobs)
    users: set[str] = set()
    models: Counter[str] = Counter()
    hours, days = [0] * HOURS_OF_DAY, [0] * DAYS_OF_WEEK
    for job in trace:
        gpus = gpus_of(job)
        for some in (everything, of_class[size_class(gpus)], of_queue[job.queue]):
            some.add(job, gpus)
        users.add(job.user)
        models[job.gpu or ""] += 1
        hour = int(job.submit_s // HOUR_S)
        hours[hour % HOURS_OF_DAY] += 1
        days[hour // HOURS_OF_DAY % DAYS_OF_WEEK] += 1
    span_s = trace.last_s - trace.first_s
    return {
        "format": trace.format,
        "jobs": len(trace),
        "left_out": dict(sorted(trace.left_out.items())),
        "first_s": round(trace.first_s, DIGITS),
        "span_s": round(span_s, DIGITS),
        "gpu_hours": round(everything.gpu_s / HOUR_S, DIGITS),
        "mean_gpus": round(everything.gpu_s / span_s, DIGITS) if span_s else None,
        "jobs_per_hour": round(len(trace) * HOUR_S / span_s, DIGITS) if span_s else None,
        "duration_s": durations(everything.durations_s),
        "users": len(users - {""}),
        "sizes": [
            {"gpus": name_of(bound), **of_class[bound].told(len(trace), everything.gpu_s)}
            for bound in sorted(of_class)
        ],
        "queues": [
            {"queue": queue, **jobs.told(len(trace), everything.gpu_s)}
            for queue, jobs in _most_first(of_queue)
        ],
        "gpu_models": [
            {"gpu": model or None, "jobs": count}
            for model, count in sorted(models.items(), key=lambda each: (-each[1], each[0]))
        ],
        "jobs_by_hour_of_day": hours,
        "jobs_by_day_of_week": days,
    }


def _most_first(of_queue: Mapping[str, _Jobs]) -> list[tuple[str, _Jobs]]:
    return sorted(of_queue.items(), key=lambda each: (-each[1].gpu_s, each[0]))
