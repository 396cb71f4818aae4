"""The traces of Muri (SIGCOMM 2022, github.com/Rivendile/Muri, simulator/trace-data), made from Philly.

As upstream has them, with times in milliseconds, and converted to seconds. duration is what the job took on Philly;
Muri's own simulation counts iterations of its measured models instead (`gantree.sim.muri`). The name of the model is
kept. A job says how many GPUs it had, on machines of 8.
"""

from typing import Any

from gantree.formats.traces import cells
from gantree.formats.traces.importers.members import equal_members
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import TableFormat


def _job(values: dict[str, Any]) -> TraceJob:
    members, gpus_per_member = equal_members(values["num_gpu"])
    return TraceJob(
        job_id=values["job_id"],
        submit_s=values["submit_time"] / 1000,
        duration_s=values["duration"] / 1000,
        members=members,
        gpus_per_member=gpus_per_member,
        model=values["model_name"],
    )


def _converted_job(values: dict[str, Any]) -> TraceJob:
    members, gpus_per_member = equal_members(values["num_gpus"])
    return TraceJob(
        job_id=values["job_id"],
        submit_s=values["arrival_s"],
        duration_s=values["duration_s"],
        members=members,
        gpus_per_member=gpus_per_member,
        model=values["model"],
    )


MURI = TableFormat(
    name="muri",
    title="Muri 2022",
    required={
        "job_id": cells.NAME,
        "num_gpu": cells.COUNT_FROM_ONE,
        "submit_time": cells.SECONDS,
        "duration": cells.SECONDS,
        "model_name": cells.NAME,
    },
    optional={},
    job=_job,
    mark=("iterations", "iteration_time"),
)
MURI_SECONDS = TableFormat(
    name="muri-seconds",
    title="Muri 2022, converted to seconds",
    required={
        "job_id": cells.NAME,
        "arrival_s": cells.SECONDS,
        "duration_s": cells.SECONDS,
        "num_gpus": cells.COUNT_FROM_ONE,
        "model": cells.NAME,
    },
    optional={},
    job=_converted_job,
    mark=("iterations", "iter_ms"),
)
