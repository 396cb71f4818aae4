"""A recording of the files that `gantree kubernetes snapshot` writes: jobs as they were at a moment, and no past.

Each gang of the trace is handed in at its submission and has the work that the trace says, which is an estimate. What
became of it is not in the files, so there is nothing to compare with.
"""

from collections.abc import Iterable
from dataclasses import replace

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.phases import Phase
from gantree.sim.overheads import Overheads
from gantree.sim.replay.outcomes import JobOutcome
from gantree.sim.replay.recording import JobRecord, MeasuredOverheads, Recording
from gantree.sim.workload import check_trace, job_of


def recording_of(site: Cluster, trace: Iterable[TraceJob]) -> Recording:
    """The gangs of a snapshot. Raises BadInput for a trace without jobs, or one that contradicts itself."""
    rows = tuple(trace)
    check_trace(rows)
    if not rows:
        raise BadInput("trace: there is no job in it; nothing to replay")
    return Recording(
        jobs=tuple(map(_record, rows)),
        site=site,
        requests=(),
        policies=(),
        measured=MeasuredOverheads(Overheads(), 0, 0, 0),
        began_at=min(row.submit_s for row in rows),
        read_to=max(row.submit_s for row in rows),
    )


def _record(row: TraceJob) -> JobRecord:
    spec = replace(job_of(row), name=row.job_id, expected_s=row.duration_s)
    outcome = JobOutcome(
        job=row.job_id,
        name=row.job_id,
        queue=row.queue,
        user=row.user,
        gpus=spec.gpus,
        submitted_at=row.submit_s,
        outcome=Phase.PENDING.value,
    )
    return JobRecord(spec, outcome)
