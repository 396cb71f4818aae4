"""Job logs of Slurm clusters as SenseTime and Shanghai AI Lab publish them: Helios and Acme.

Helios (SC 2021, github.com/S-Lab-System-Group/HeliosData): cluster_log.csv of four clusters; vc, the virtual cluster,
becomes the queue. Acme (NSDI 2024, github.com/InternLM/AcmeTrace): trace_seren.csv and trace_kalos.csv; type, the
kind of work ("Pretrain", "Eval"), becomes the queue. Times are wall clocks; duration is seconds from start to end,
queue the seconds before. Jobs without GPUs are kept. Jobs that never started, or that ended before, are left out.
"""

from typing import Any

from gantree.formats.traces import cells
from gantree.formats.traces.importers.members import members_on
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import LeftOut, TableFormat

ABSENT = frozenset({"", "None", "NaN", "nan", "NaT"})


def _job(values: dict[str, Any], queue: str) -> TraceJob:
    if "start_time" not in values or "duration" not in values:
        raise LeftOut("never started")
    if values["duration"] < 0:
        raise LeftOut("ended before it started")
    members, gpus_per_member = members_on(values["node_num"], values["gpu_num"])
    return TraceJob(
        job_id=values["job_id"],
        submit_s=values["submit_time"],
        duration_s=values["duration"],
        members=members,
        gpus_per_member=gpus_per_member,
        queue=queue,
        user=values.get("user", ""),
        cpus_per_member=values.get("cpu_num", 0) / members,
        memory_GiB_per_member=values.get("mem_per_pod_GB", 0.0),
    )


def _helios_job(values: dict[str, Any]) -> TraceJob:
    return _job(values, values["vc"])


def _acme_job(values: dict[str, Any]) -> TraceJob:
    return _job(values, values["type"])


_REQUIRED = {
    "job_id": cells.FOREIGN_NAME,
    "gpu_num": cells.WHOLE,
    "node_num": cells.WHOLE,
    "submit_time": cells.WALL_CLOCK,
}
_OPTIONAL = {
    "user": cells.TEXT,
    "cpu_num": cells.WHOLE,
    "start_time": cells.WALL_CLOCK,
    "duration": cells.NUMBER,
}
_MARK = ("start_time", "end_time", "duration", "queue", "state")

HELIOS = TableFormat(
    name="helios",
    title="Helios 2020 (cluster_log.csv)",
    required={**_REQUIRED, "vc": cells.FOREIGN_NAME},
    optional=_OPTIONAL,
    job=_helios_job,
    mark=_MARK,
    absent=ABSENT,
    own_clock=False,
)
ACME = TableFormat(
    name="acme",
    title="Acme 2023 (trace_seren.csv, trace_kalos.csv)",
    required={**_REQUIRED, "type": cells.FOREIGN_NAME},
    optional={**_OPTIONAL, "mem_per_pod_GB": cells.AMOUNT},
    job=_acme_job,
    mark=(*_MARK, "gpu_time"),
    absent=ABSENT,
    own_clock=False,
)
