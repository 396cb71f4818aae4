"""More or less load with the same jobs: arrivals closer together or further apart, or longer or shorter jobs.

The offered load is GPU-seconds asked for over the time in which they come. Both ways multiply it by the factor.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gantree.formats.traces import TraceJob
from gantree.formats.traces.cells import MAX_SECONDS
from gantree.model.errors import BadInput


def closer(jobs: Iterable[TraceJob], factor: float, first_s: float = 0.0) -> Iterator[TraceJob]:
    """Divide the time since the first submission, at first_s, by a factor."""
    for job in jobs:
        yield replace(job, submit_s=first_s + (job.submit_s - first_s) / factor)


def longer(jobs: Iterable[TraceJob], factor: float) -> Iterator[TraceJob]:
    """Multiply durations, and with them limits and expected times, by a factor. Checkpoint intervals stay.

    Raises BadInput for a job that would run longer than a trace can say.
    """
    for job in jobs:
        if job.duration_s * factor > MAX_SECONDS:
            raise BadInput(f"job {job.job_id}: would run for more than {MAX_SECONDS:g} s")
        yield replace(
            job,
            duration_s=job.duration_s * factor,
            time_limit_s=None if job.time_limit_s is None else job.time_limit_s * factor,
            expected_s=None if job.expected_s is None else job.expected_s * factor,
        )
