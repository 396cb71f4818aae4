"""Attempts with the rows of their jobs: as recorded, or, of a bounded run that kept none, one for each job by its row.

Such a job counts as if it had held its last place from its first start on, for as long as all its attempts together
did: GPU-hours are exact, and over time they are where most of them were.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from gantree.sim.record import Span
from gantree.sim.results import JobRow, Result


def rows_of(result: Result) -> Iterable[JobRow]:
    """Jobs of the trace, and replicas of services, which hold GPUs as they do."""
    return chain(result.jobs, result.replicas)


def spans_of(result: Result) -> Iterator[Span]:
    """All attempts."""
    if result.spans or not result.held_gpu_s:
        yield from result.spans
        return
    for _, span in attempts_of(result):
        yield span


def attempts_of(result: Result) -> Iterator[tuple[JobRow, Span]]:
    """All attempts, each with the row of its job."""
    if result.spans:
        row_of_job = {f"t{row.job_id}": row for row in rows_of(result)}
        for span in result.spans:
            yield row_of_job[span.job], span
        return
    for row in rows_of(result):
        if row.placement is not None and row.first_start_s is not None and row.gpus:
            yield row, _whole(row, row.first_start_s)


def _whole(row: JobRow, from_s: float) -> Span:
    assert row.placement is not None
    to_s = from_s + row.gpu_s_held / row.gpus
    cause = row.stops[-1].cause if row.stops else ""
    job = f"t{row.job_id}"
    return Span(job, row.attempts, from_s, to_s, row.gpus, row.placement, cause, row.gpu_s_lost)
