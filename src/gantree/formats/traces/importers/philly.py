"""Philly, Microsoft 2017 (Jeon et al., ATC 2019), job by job as the artifact of Pollux (OSDI 2021) has it.

Columns job_id, arrival_s, duration_s, num_gpus, vc. It says how many GPUs a job had, not on how many machines,
which had at most 8. vc, the virtual cluster, becomes the queue.
"""

from typing import Any

from gantree.formats.traces import cells
from gantree.formats.traces.importers.members import equal_members
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import TableFormat


def _job(values: dict[str, Any]) -> TraceJob:
    members, gpus_per_member = equal_members(values["num_gpus"])
    return TraceJob(
        job_id=values["job_id"],
        submit_s=values["arrival_s"],
        duration_s=values["duration_s"],
        members=members,
        gpus_per_member=gpus_per_member,
        queue=values["vc"],
    )


POLLUX = TableFormat(
    name="philly-pollux",
    title="Philly 2017 as CSV (Pollux)",
    required={
        "job_id": cells.NAME,
        "arrival_s": cells.SECONDS,
        "duration_s": cells.SECONDS,
        "num_gpus": cells.COUNT_FROM_ONE,
        "vc": cells.QUEUE,
    },
    optional={},
    job=_job,
)
