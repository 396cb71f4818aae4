"""gantree's own columns of a trace: the kind of each, and the rules between them."""

from collections.abc import Mapping
from typing import Any

from gantree.formats.traces import cells
from gantree.formats.traces.cells import Cell
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import Conflict, TableFormat

COLUMNS: Mapping[str, Cell] = {
    "job_id": cells.NAME,
    "submit_s": cells.SECONDS,
    "duration_s": cells.SECONDS,
    "members": cells.COUNT_FROM_ONE,
    "gpus_per_member": cells.COUNT,
    "gpu": cells.TEXT,
    "queue": cells.QUEUE,
    "user": cells.TEXT,
    "priority": cells.PRIORITY,
    "cpus_per_member": cells.AMOUNT,
    "checkpoint_s": cells.SECONDS_ABOVE_ZERO,
    "time_limit_s": cells.SECONDS_ABOVE_ZERO,
    "expected_s": cells.SECONDS_ABOVE_ZERO,
    "preemptible": cells.YES_NO,
    "elastic_min": cells.COUNT_FROM_ONE,
    "elastic_max": cells.COUNT_FROM_ONE,
    "required": cells.TIER,
    "preferred": cells.TIER,
    "slice_members": cells.COUNT_FROM_ONE,
    "slice_required": cells.TIER,
    "spread": cells.TIER,
    "spread_at_most": cells.COUNT_FROM_ONE,
    "mig": cells.MIG,
    "gpu_share": cells.SHARE,
    "gpu_memory_GiB": cells.AMOUNT_ABOVE_ZERO,
    "memory_GiB_per_member": cells.AMOUNT,
    "nics_per_member": cells.COUNT,
    "market": cells.MARKET,
    "busy": cells.PART,
    "model": cells.NAME,
    "parallelism": cells.PARALLELISM,
}
REQUIRED = tuple(COLUMNS)[:5]
OPTIONAL = tuple(COLUMNS)[5:]


def conflict_in(job: TraceJob) -> Conflict | None:
    """The first rule between columns that a job breaks, None where it keeps them all."""
    return _elastic(job) or _slices(job) or _spread(job) or _parts(job) or _expert_ways(job)


def _elastic(job: TraceJob) -> Conflict | None:
    """The members of a job lie between two bounds."""
    least, most = job.elastic_min, job.elastic_max
    if least is None and most is None:
        return None
    if least is None or most is None:
        column = "elastic_min" if least is None else "elastic_max"
        return Conflict(column, "nothing", "both bounds or none")
    if not least <= job.members:
        return Conflict("elastic_min", f"`{least}`", f"at most members, which are {job.members}")
    if not job.members <= most:
        return Conflict("elastic_max", f"`{most}`", f"at least members, which are {job.members}")
    return None


def _slices(job: TraceJob) -> Conflict | None:
    if (job.slice_members is None) == (job.slice_required is None):
        return None
    missing = "slice_members" if job.slice_members is None else "slice_required"
    return Conflict(missing, "nothing", "both slice_members and slice_required, or none")


def _spread(job: TraceJob) -> Conflict | None:
    if job.spread_at_most is None or job.spread is not None:
        return None
    return Conflict("spread", "nothing", "a tier, where spread_at_most says how many")


def _parts(job: TraceJob) -> Conflict | None:
    """A member has whole GPUs, or a MIG instance, or a share of a GPU."""
    if job.mig is not None and job.gpus_per_member:
        return Conflict("mig", f"`{job.mig}`", "nothing, or gpus_per_member 0")
    if job.gpu_share is not None and job.gpus_per_member:
        return Conflict("gpu_share", f"`{job.gpu_share:g}`", "nothing, or gpus_per_member 0")
    if job.gpu_share is not None and job.mig is not None:
        return Conflict("gpu_share", f"`{job.gpu_share:g}`", "nothing where there is a mig")
    if job.gpu_memory_GiB is not None and job.gpu_share is None:
        return Conflict("gpu_memory_GiB", f"`{job.gpu_memory_GiB:g}`", "nothing without gpu_share")
    return None


def _expert_ways(job: TraceJob) -> Conflict | None:
    """Experts are spread over data-parallel replicas."""
    ways = dict(job.parallelism)
    if "expert" not in ways or "data" not in ways or ways["data"] % ways["expert"] == 0:
        return None
    allowed = f"a divisor of data, which is {ways['data']}"
    return Conflict("parallelism", f"`expert={ways['expert']}`", allowed)


def _job(values: dict[str, Any]) -> TraceJob:
    return TraceJob(**values)


OWN = TableFormat(
    name="gantree",
    title="gantree's own columns",
    required={name: COLUMNS[name] for name in REQUIRED},
    optional={name: COLUMNS[name] for name in OPTIONAL},
    job=_job,
    conflict=conflict_in,
)
