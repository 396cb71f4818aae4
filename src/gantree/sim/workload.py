"""Makes jobs of the rows of a trace: one role of equal members.

A trace says how long a job ran, not how it was placed; it may say what a job asked of topology, GPUs and
market. A job with a checkpoint interval can be asked to save; one without is only ever stopped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite

from gantree.formats.traces import TraceJob
from gantree.formats.traces.columns import conflict_in
from gantree.model.cluster import ANY_MARKET, MARKET_LABEL, Cluster
from gantree.model.errors import BadInput
from gantree.model.jobs import Checkpoint, Elastic, Job, Role, Shape, Slices, Spread, TopologySpec
from gantree.policy.amounts import requested_by_member
from gantree.text.words import counted

ROLE = "worker"


def job_id(row: TraceJob) -> str:
    """The id under which the scheduler knows a row: names of jobs begin with a letter, ids in traces need not."""
    return f"t{row.job_id}"


def row_id(job: str) -> str:
    """The id in the trace of a job of the scheduler."""
    return job.removeprefix("t")


def on_any_market(trace: Sequence[TraceJob], cluster: Cluster) -> Sequence[TraceJob]:
    """The rows, which may use spot nodes too if the site has some and no row of the trace says a word of markets.

    Such a trace is of a site that knew no markets; without spot nodes nothing changes.
    """
    if all(node.spot is None for node in cluster.nodes) or any(row.market for row in trace):
        return trace
    return tuple(replace(row, market=ANY_MARKET) for row in trace)


def job_of(row: TraceJob) -> Job:
    """The job that a row of a trace describes."""
    elastic = None
    if row.elastic_min is not None and row.elastic_max is not None:
        elastic = Elastic(row.elastic_min, row.elastic_max)
    return Job(
        name=job_id(row),
        roles=(Role(ROLE, row.members, shape_of(row)),),
        queue=row.queue,
        priority=row.priority,
        parallelism=row.parallelism,
        elastic=elastic,
        checkpoint=Checkpoint(every_s=row.checkpoint_s) if row.checkpoint_s else None,
        time_limit_s=row.time_limit_s,
        user=row.user,
        preemptible=row.preemptible,
        expected_s=row.expected_s,
        topology=_topology(row),
    )


def shape_of(row: TraceJob) -> Shape:
    """What one member of a row needs on one node."""
    return Shape(
        gpus=row.gpus_per_member,
        cpus=row.cpus_per_member,
        memory_GiB=row.memory_GiB_per_member,
        nics=row.nics_per_member,
        models=tuple(row.gpu.split("|")) if row.gpu else (),
        labels=((MARKET_LABEL, row.market),) if row.market else (),
        mig=row.mig,
        gpu_share=row.gpu_share,
        gpu_memory_GiB=row.gpu_memory_GiB,
    )


def gpus_of(row: TraceJob) -> float:
    """GPUs of all members of a row; a share counts as its compute, a MIG instance as its compute slices."""
    if row.mig is None and row.gpu_share is None:
        return row.members * row.gpus_per_member
    of_member = requested_by_member(Role(ROLE, row.members, shape_of(row)))
    return row.members * of_member.get("gpus", 0.0)


def _topology(row: TraceJob) -> TopologySpec:
    slices: tuple[Slices, ...] = ()
    if row.slice_members is not None and row.slice_required is not None:
        slices = (Slices(row.slice_members, row.slice_required),)
    spread = Spread(row.spread, row.spread_at_most) if row.spread else None
    return TopologySpec(row.required, row.preferred, slices, spread)


def check_trace(trace: Iterable[TraceJob]) -> None:
    """Raise BadInput for an id that comes twice, and as `check_row` does."""
    seen: set[str] = set()
    for row in trace:
        if row.job_id in seen:
            raise BadInput(f"trace: job {row.job_id} is there twice")
        seen.add(row.job_id)
        check_row(row)


def check_row(row: TraceJob) -> None:
    """Raise BadInput for times and numbers that cannot be, and for columns that contradict each other."""
    optional = (row.checkpoint_s or 0.0, row.time_limit_s or 0.0, row.expected_s or 0.0)
    times = (row.submit_s, row.duration_s, *optional)
    if not all(isfinite(time_s) and time_s >= 0 for time_s in times):
        raise BadInput(f"trace: job {row.job_id}: times must be finite and at least 0 s")
    if row.members < 1 or row.gpus_per_member < 0:
        raise BadInput(f"trace: job {row.job_id}: needs 1 member or more, and no negative GPUs")
    if row.gpu_share is not None and not 0 < row.gpu_share <= 1:
        raise BadInput(f"trace: job {row.job_id}: gpu_share must be above 0 and at most 1")
    least = row.members if row.elastic_min is None else row.elastic_min
    most = row.members if row.elastic_max is None else row.elastic_max
    if not 1 <= least <= row.members <= most:
        raise BadInput(
            f"trace: job {row.job_id}: {counted(row.members, 'member is', 'members are')} not between "
            f"{least} and {most}"
        )
    conflict = conflict_in(row)
    if conflict is not None:
        column, found, allowed = conflict
        raise BadInput(f"trace: job {row.job_id}: {column}: found {found}; allowed: {allowed}")
