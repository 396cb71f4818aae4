"""Pollux' jobs under gantree's scheduler: the same requests, nodes, measured speeds and cost of a start.

A job is as many members of one GPU as it has replicas, so it may lie wherever theirs may. Its work is the seconds it
runs on as few nodes as can be; elsewhere it is as fast as was measured. A start costs START_S. Who is stopped saves at
once and goes on where it was. As in their simulator, a job is seen at the next full minute after it was submitted; that
one has ended is seen KNOWN_AFTER_S later, half a minute, which is the mean of theirs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster, Node
from gantree.model.jobs import Job
from gantree.model.orders import MemberLaunch, StartGang
from gantree.policy.rules import Policy
from gantree.sim.overheads import Overheads
from gantree.sim.pollux.profiles import Placement
from gantree.sim.pollux.tiresias import INTERVAL_S, START_S, Replay
from gantree.sim.pollux.workload import GPUS_OF_NODE, NODES, PolluxJob, packed
from gantree.sim.run import Simulation
from gantree.sim.running.model import RunningModel
from gantree.sim.running.pace import Pace
from gantree.sim.workload import job_id, job_of
from gantree.topology.hardware.catalog import plain

KNOWN_AFTER_S = INTERVAL_S / 2
MACHINE = "t4-node"
NEVER_BY_ITSELF = 2.0
"""The interval between checkpoints, in run times of the job: it saves when asked to, and at no other time."""


def cluster_of_pollux() -> Cluster:
    """Sixteen nodes of four GPUs below one switch."""
    machine = plain(MACHINE, GPUS_OF_NODE)
    nodes = tuple(Node(f"n{number}", MACHINE, ("l0",)) for number in range(NODES))
    return Cluster("pollux", ("leaf", "node"), {MACHINE: machine}, nodes)


@dataclass(frozen=True, slots=True)
class Outcome(Replay):
    """As `Replay`; spread is by how much longer jobs worked than on as few nodes as can be, mean over jobs."""

    spread: float = 1.0


class MeasuredPace(Pace):
    """Speeds as they were measured for the placement."""

    def __init__(self, jobs: Sequence[PolluxJob], cluster: Cluster) -> None:
        super().__init__(RunningModel(), cluster, seed=0)
        self._jobs = {job_id(_row(job)): job for job in jobs}

    def start(self, order: StartGang, spec: Job) -> float:
        """The speed of a gang where it is placed; 1 on as few nodes as can be."""
        job = self._jobs[order.job]
        return job.iteration_s(packed(job.replicas)) / job.iteration_s(placement_of(order.members))


def placement_of(members: Sequence[MemberLaunch]) -> Placement:
    """How many members sit on each node, in the order of ranks."""
    ranked = sorted(members, key=lambda member: member.first_rank)
    return tuple(Counter(member.node for member in ranked).values())


def run(jobs: Sequence[PolluxJob], policy: Policy) -> Outcome:
    """Run a workload under a policy to its last end. All jobs end."""
    cluster = cluster_of_pollux()
    overheads = Overheads(start_s=START_S, end_s=KNOWN_AFTER_S)
    simulation = Simulation(cluster, map(_row, jobs), policy, overheads, _known_job_of)
    simulation.cluster.pace = MeasuredPace(jobs, cluster)
    while simulation.step():
        pass
    rows = simulation.result().jobs
    ends = [row.end_s - KNOWN_AFTER_S for row in rows if row.end_s is not None and row.finished]
    assert len(ends) == len(jobs), "a job did not end"
    return Outcome(
        tuple(end_s - job.arrival_s for end_s, job in zip(ends, jobs, strict=True)),
        max(ends),
        sum(row.attempts - 1 for row in rows),
        sum(row.stretch or 1.0 for row in rows) / len(rows),
    )


def _row(job: PolluxJob) -> TraceJob:
    work_s = job.work_s(packed(job.replicas))
    return TraceJob(
        job_id=job.name,
        submit_s=ceil(job.arrival_s / INTERVAL_S) * INTERVAL_S,
        duration_s=work_s,
        members=job.replicas,
        gpus_per_member=1,
        checkpoint_s=work_s * NEVER_BY_ITSELF,
    )


def _known_job_of(row: TraceJob) -> Job:
    """Return the job of a row, with its exact run time as expected_s."""
    return replace(job_of(row), expected_s=row.duration_s)
