"""Slurm's accounting, as `sacct --parsable2` prints it (https://slurm.schedmd.com/sacct.html).

    sacct --allusers --allocations --parsable2 --noconvert --starttime=2026-01-01 \\
        --format=JobID,User,Account,Partition,QOS,Submit,Start,End,Elapsed,Timelimit,State,NNodes,NCPUS,ReqMem,AllocTRES

A job runs for Elapsed; GPUs are gres/gpu of AllocTRES (else of ReqTRES), its model gres/gpu:MODEL. The partition
becomes the queue, without one the account. Steps (`7.batch`) and jobs that never started are left out. Jobs that still
run count with what they ran by then. Elements of arrays keep their ids (`7_3`); parts of a heterogeneous job are jobs
(`7-1`).
"""

import re
from typing import Any

from gantree.formats.traces import cells
from gantree.formats.traces.cells import Cell
from gantree.formats.traces.importers.members import members_on
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import LeftOut, TableFormat

ABSENT = frozenset({"", "Unknown", "None", "N/A", "Partition_Limit", "UNLIMITED", "INVALID"})
GIB_OF_UNIT = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10}
_ELAPSED = re.compile(
    r"(?:(\d{1,6})-)?(\d{1,6}):(\d{2}):(\d{2})(?:\.\d+)?|(\d{1,6}):(\d{2})(?:\.\d+)?", re.ASCII
)
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([KMGT]?)", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_ANY_GPU, _MODEL = "gres/gpu", "gres/gpu:"


def _elapsed(text: str) -> float:
    """Seconds of [D-]HH:MM:SS or MM:SS."""
    found = _ELAPSED.fullmatch(text)
    if found is None:
        raise ValueError
    days, hours, minutes, seconds, short_minutes, short_seconds = found.groups()
    if short_minutes is not None:
        return float(int(short_minutes) * 60 + int(short_seconds))
    return float(((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds))


def _resources(text: str) -> dict[str, str]:
    """Amounts of cpu=8,mem=64G,gres/gpu=8,gres/gpu:h100=8. CPUs and GPUs are whole numbers."""
    amounts = {}
    for word in text.split(","):
        name, sign, value = word.partition("=")
        is_count = name in ("cpu", _ANY_GPU) or name.startswith(_MODEL)
        if not sign or (is_count and _WHOLE.fullmatch(value) is None):
            raise ValueError
        amounts[name] = value
    return amounts


def _gpus(resources: dict[str, str]) -> tuple[int, str | None]:
    """GPUs, and their model if they are all of one."""
    of_model = {
        name.removeprefix(_MODEL): int(value)
        for name, value in resources.items()
        if name.startswith(_MODEL)
    }
    gpus = int(resources.get(_ANY_GPU, sum(of_model.values())))
    return gpus, next(iter(of_model)) if len(of_model) == 1 else None


def _memory_GiB(text: str) -> float:
    found = _MEMORY.fullmatch(text)
    return float(found[1]) * GIB_OF_UNIT[found[2] or "M"] if found else 0.0


def _job_id(text: str) -> str:
    """The id as sacct prints it, if it can become a name."""
    cells.name_of(text)
    return text.strip()


def _job(values: dict[str, Any]) -> TraceJob:
    job_id = values["JobID"]
    if "." in job_id:
        raise LeftOut("a step of a job")
    if "Start" not in values or "Elapsed" not in values or "[" in job_id:
        raise LeftOut("never started")
    resources = values.get("AllocTRES") or values.get("ReqTRES") or {}
    gpus, model = _gpus(resources)
    members, gpus_per_member = members_on(values.get("NNodes", 1), gpus)
    cpus = int(resources.get("cpu", values.get("NCPUS", 0)))
    return TraceJob(
        job_id=cells.name_of(job_id),
        submit_s=values["Submit"],
        duration_s=values["Elapsed"],
        members=members,
        gpus_per_member=gpus_per_member,
        gpu=model,
        queue=values.get("Partition") or values.get("Account") or "default",
        user=values.get("User", ""),
        cpus_per_member=cpus / members,
        memory_GiB_per_member=_memory_GiB(resources.get("mem", "")) / members,
        time_limit_s=values.get("Timelimit") or None,
    )


SACCT = TableFormat(
    name="sacct",
    title="Slurm accounting (sacct --parsable2)",
    required={"JobID": Cell(_job_id, cells.FOREIGN_NAME.allowed), "Submit": cells.WALL_CLOCK},
    optional={
        "Start": cells.WALL_CLOCK,
        "Elapsed": Cell(_elapsed, "a time such as 1-02:03:04"),
        "Timelimit": Cell(_elapsed, "a time such as 1-02:03:04"),
        "User": cells.TEXT,
        "Account": cells.FOREIGN_NAME,
        "Partition": cells.FOREIGN_NAME,
        "NNodes": cells.COUNT,
        "NCPUS": cells.COUNT,
        "AllocTRES": Cell(_resources, "resources such as cpu=8,mem=64G,gres/gpu=8"),
        "ReqTRES": Cell(_resources, "resources such as cpu=8,mem=64G,gres/gpu=8"),
    },
    job=_job,
    mark=("Start", "Elapsed"),
    absent=ABSENT,
    delimiter="|",
    own_clock=False,
)
