"""Tables of Alibaba's clusters with one row a job or pod (github.com/alibaba/clusterdata).

openb 2023 (cluster-trace-gpu-v2023): pods; a pod of one GPU may have a share of it (gpu_milli), gpu_spec lists models.
A pod that was never scheduled is left out; a pod runs from scheduled_time to deletion_time.
Spot 2026 (cluster-trace-v2026-spot-gpu, job_info_df.csv): jobs of equal workers. A high-priority job (HP) has priority
`production` and market `on-demand`, a spot job priority `batch` and market `any`; organization becomes the queue.
DLRM 2025 (cluster-trace-gpu-v2025): instances of inference services, a job each; app_name becomes the queue. An
instance that was there before the trace begins with it, one that outlives it runs to its end. Percentages of NICs and
limits per node are not kept.
"""

from typing import Any

from gantree.formats.traces import cells
from gantree.formats.traces.importers.members import whole_or_share
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import LeftOut, TableFormat

ABSENT = frozenset({"", "nan", "NaN"})
WHOLE_MILLI = 1000
MIB_PER_GIB = 1024
DLRM_END_S = 31 * 86_400.0
"""The last moments of the trace are in its 31st day."""
MARKET_OF_TYPE = {"HP": "on-demand", "Spot": "any"}
PRIORITY_OF_TYPE = {"HP": "production", "Spot": "batch"}


def _pod(values: dict[str, Any]) -> TraceJob:
    if "scheduled_time" not in values:
        raise LeftOut("never scheduled")
    if values["deletion_time"] < values["scheduled_time"]:
        raise LeftOut("deleted before it was scheduled")
    gpus = values["num_gpu"] * min(values["gpu_milli"], WHOLE_MILLI) / WHOLE_MILLI
    return TraceJob(
        job_id=values["name"],
        submit_s=values["creation_time"],
        duration_s=values["deletion_time"] - values["scheduled_time"],
        members=1,
        gpu=values.get("gpu_spec"),
        cpus_per_member=values["cpu_milli"] / 1000,
        memory_GiB_per_member=values["memory_mib"] / MIB_PER_GIB,
        **whole_or_share(gpus),
    )


def _spot_job(values: dict[str, Any]) -> TraceJob:
    kind = values["job_type"]
    if kind not in MARKET_OF_TYPE:
        raise LeftOut(f"of type {kind}, which is not known")
    return TraceJob(
        job_id=values["job_name"],
        submit_s=values["submit_time"],
        duration_s=values["duration"],
        members=values["worker_num"],
        gpu=values.get("gpu_model"),
        queue=values["organization"],
        priority=PRIORITY_OF_TYPE[kind],
        cpus_per_member=values["cpu_request"],
        market=MARKET_OF_TYPE[kind],
        **whole_or_share(values["gpu_request"]),
    )


def _instance(values: dict[str, Any]) -> TraceJob:
    created_s = values.get("creation_time", 0.0)
    started_s = values.get("scheduled_time", created_s)
    return TraceJob(
        job_id=values["instance_sn"],
        submit_s=created_s,
        duration_s=max(0.0, values.get("deletion_time", DLRM_END_S) - started_s),
        members=1,
        queue=values["app_name"],
        priority="serving",
        cpus_per_member=values["cpu_request"],
        memory_GiB_per_member=values["memory_request"],
        **whole_or_share(values["gpu_request"]),
    )


OPENB = TableFormat(
    name="openb",
    title="Alibaba openb 2023 (pods)",
    required={
        "name": cells.NAME,
        "cpu_milli": cells.COUNT,
        "memory_mib": cells.COUNT,
        "num_gpu": cells.COUNT,
        "gpu_milli": cells.COUNT,
        "creation_time": cells.SECONDS,
        "deletion_time": cells.SECONDS,
    },
    optional={"scheduled_time": cells.SECONDS, "gpu_spec": cells.TEXT},
    job=_pod,
    mark=("scheduled_time", "pod_phase"),
    absent=ABSENT,
)
SPOT_2026 = TableFormat(
    name="alibaba-spot-2026",
    title="Alibaba spot GPUs 2026 (job_info_df.csv)",
    required={
        "job_name": cells.FOREIGN_NAME,
        "organization": cells.FOREIGN_NAME,
        "cpu_request": cells.AMOUNT,
        "gpu_request": cells.AMOUNT,
        "worker_num": cells.COUNT_FROM_ONE,
        "submit_time": cells.SECONDS,
        "duration": cells.SECONDS,
        "job_type": cells.TEXT,
    },
    optional={"gpu_model": cells.TEXT},
    job=_spot_job,
    absent=ABSENT,
)
DLRM_2025 = TableFormat(
    name="alibaba-dlrm-2025",
    title="Alibaba DLRM 2025 (instances)",
    required={
        "instance_sn": cells.FOREIGN_NAME,
        "app_name": cells.FOREIGN_NAME,
        "cpu_request": cells.AMOUNT,
        "gpu_request": cells.AMOUNT,
        "memory_request": cells.AMOUNT,
    },
    optional=dict.fromkeys(("creation_time", "scheduled_time", "deletion_time"), cells.SECONDS),
    job=_instance,
    mark=("role", "creation_time", "scheduled_time", "deletion_time"),
    absent=ABSENT,
)
