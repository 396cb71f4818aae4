"""Rows of a trace from jobs of the scheduler: of its journal, or read from the pods of a cluster.

A row has one role. Of several, the one with the most GPUs becomes the row; where that is a tie, the one with the most
members. What a row cannot say is lost: other roles, devices, labels but the market, nested slices, boxes of tori.
"""

from gantree.formats.traces import TraceJob
from gantree.formats.traces.cells import MAX_SECONDS, name_of
from gantree.model.cluster import ANY_MARKET, MARKET_LABEL
from gantree.model.jobs import Job, Role, Shape
from gantree.policy.amounts import profile_of_device, requested_by_member

UNIX_MONDAY_S = 4 * 86_400
"""From the start of 1970, a Thursday, to the Monday after it, by UTC."""
WEEK_S = 7 * 86_400


def row_of(job: Job, job_id: str, submit_s: float, duration_s: float) -> TraceJob:
    """The row of a job that was submitted at submit_s and ran for duration_s."""
    role = max(job.roles, key=lambda role: (_gpus(role), role.members))
    shape, topology = role.shape, job.topology
    mig = shape.mig or _mig_device(shape)
    slices = next((each for each in topology.slices if each.role is None), None)
    of_elastic = job.elastic is not None and job.elastic.min <= role.members <= job.elastic.max
    elastic = job.elastic if of_elastic and len(job.roles) == 1 else None
    return TraceJob(
        job_id=name_of(job_id),
        submit_s=submit_s,
        duration_s=min(duration_s, MAX_SECONDS),
        members=role.members,
        gpus_per_member=0 if mig else shape.gpus,
        gpu="|".join(shape.models) or None,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        cpus_per_member=shape.cpus,
        checkpoint_s=job.checkpoint.every_s if job.checkpoint else None,
        time_limit_s=job.time_limit_s,
        expected_s=job.expected_s,
        preemptible=job.preemptible,
        elastic_min=elastic.min if elastic else None,
        elastic_max=elastic.max if elastic else None,
        required=topology.required,
        preferred=topology.preferred,
        slice_members=slices.members if slices else None,
        slice_required=slices.required if slices else None,
        spread=topology.spread.tier if topology.spread else None,
        spread_at_most=topology.spread.at_most if topology.spread else None,
        mig=mig,
        gpu_share=None if mig else shape.gpu_share,
        gpu_memory_GiB=shape.gpu_memory_GiB if shape.gpu_share and not mig else None,
        memory_GiB_per_member=shape.memory_GiB,
        nics_per_member=shape.nics,
        market=_market(job, shape),
        parallelism=job.parallelism,
    )


def _gpus(role: Role) -> float:
    return role.members * requested_by_member(role).get("gpus", 0.0)


def _mig_device(shape: Shape) -> str | None:
    """The profile of the one MIG instance, or partition, that is asked for as a device, as pods do."""
    found = [profile_of_device(name) for name, count in shape.devices if count == 1]
    profiles = [each for each in found if each]
    return None if shape.gpus or len(profiles) != 1 else profiles[0]


def _market(job: Job, shape: Shape) -> str | None:
    return dict(shape.labels).get(MARKET_LABEL) or (ANY_MARKET if job.spot else None)


def from_monday(first_unix_s: float) -> float:
    """The last Monday at midnight by UTC that is not after a moment, in seconds since 1970."""
    return (first_unix_s - UNIX_MONDAY_S) // WEEK_S * WEEK_S + UNIX_MONDAY_S
