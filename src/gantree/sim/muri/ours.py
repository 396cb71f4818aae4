"""Muri's jobs under gantree's scheduler: the same work, nodes and start overheads, as a trace and a cluster.

A job of up to 8 GPUs is one member, a larger one members of 8: so it is placed as "yarn" would. Everybody knows how
long every job takes. A job that is stopped goes on where it was: it saves when it is asked to, which takes no time.
Overheads follow one of two rules (`replay`): "every event" is theirs, and what the published figures were made under;
"start" counts starts alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster, Node
from gantree.model.jobs import Job
from gantree.sim.cluster import Overheads
from gantree.sim.muri.nodes import GPUS_OF_NODE, NODES
from gantree.sim.muri.replay import Rule
from gantree.sim.muri.trace import MuriJob
from gantree.sim.workload import job_id, job_of
from gantree.topology.hardware.catalog import machine

MACHINE = "dgx-a100"

NEVER_BY_ITSELF = 2.0
"""The interval between checkpoints, in run times of the job: it saves when asked to, and at no other time."""


def cluster_of_muri() -> Cluster:
    """Eight nodes of eight GPUs below one switch."""
    return Cluster(
        name="muri",
        tiers=("leaf", "node"),
        machines={MACHINE: machine(MACHINE)},
        nodes=tuple(Node(f"n{number}", MACHINE, ("l0",)) for number in range(NODES)),
    )


def trace_of(jobs: Sequence[MuriJob]) -> list[TraceJob]:
    """A row for each job."""
    return [_row(job) for job in jobs]


def _row(job: MuriJob) -> TraceJob:
    members = max(1, job.gpus // GPUS_OF_NODE)
    assert job.gpus % members == 0, f"{job.job_id}: {job.gpus} GPUs are no whole nodes"
    return TraceJob(
        job_id=job.job_id,
        submit_s=job.arrival_s,
        duration_s=job.work_s,
        members=members,
        gpus_per_member=job.gpus // members,
        checkpoint_s=job.work_s * NEVER_BY_ITSELF,
    )


def known_job_of(row: TraceJob) -> Job:
    """Return the job of a row, with its exact run time as expected_s."""
    return replace(job_of(row), expected_s=row.duration_s)


def overheads_of(jobs: Sequence[MuriJob], rule: Rule) -> Overheads:
    """What starts cost, by one of the rules."""
    return Overheads(
        start_s_of_job={
            job_id(row): job.overhead_s for row, job in zip(trace_of(jobs), jobs, strict=True)
        },
        at_every_event=rule == "every event",
    )
