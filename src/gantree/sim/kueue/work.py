"""A test configuration as input of a simulation: a cluster, a policy, and a trace whose rows are jobs.

A cohort is an inner queue that holds the quota of its queues and can get no more; each queue is guaranteed its nominal
quota, may borrow what Kueue lets it borrow, and takes back what it lent. Higher priorities stop lower ones of the same
queue only. Without topology all CPUs are those of one node, so that quotas alone hold anything back.

Workloads of a class come one by one, the first when its interval is over for the first time (generator.go). A workload
that is stopped begins again; its new start takes no time, and the policy says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.jobs import Job, Role, Slices, TopologySpec
from gantree.model.jobs import Shape as MemberShape
from gantree.policy.rules import Policy, Preemption, QueueRule
from gantree.sim.kueue.shapes import BORROWED_CPUS, NOMINAL_CPUS, Shape, WorkClass
from gantree.sim.workload import ROLE, job_of

RACK = "rack"
MACHINE, NODE_CPUS, NODE_MEMORY_GIB = "kueue-node", 96.0, 256.0


def cluster_of(shape: Shape) -> Cluster:
    """640 nodes of 96 CPUs in racks, or one node with the quota of all queues."""
    if not shape.racks:
        everything = Machine(MACHINE, gpus=0, cpus=shape.cohorts * shape.cohort_cpus)
        return Cluster(shape.name, ("node",), {MACHINE: everything}, (Node("n0", MACHINE, ()),))
    machine = Machine(MACHINE, gpus=0, cpus=NODE_CPUS, memory_GiB=NODE_MEMORY_GIB)
    nodes = tuple(
        Node(f"r{rack}-n{number}", MACHINE, ("b0", f"r{rack}"))
        for rack in range(shape.racks)
        for number in range(shape.nodes_of_rack)
    )
    return Cluster(shape.name, ("block", RACK, "node"), {MACHINE: machine}, nodes)


def policy_of(shape: Shape, base: Policy) -> Policy:
    """A policy with the shape's queues."""
    return replace(
        base,
        queues=tuple(_queues(shape)),
        preemption=Preemption(by="priority", across=False),
        restart_s=0.0,
    )


def _queues(shape: Shape) -> Iterator[QueueRule]:
    for cohort in range(shape.cohorts):
        quota = {"cpus": shape.cohort_cpus}
        yield QueueRule(_cohort(cohort), cohort=_cohort(cohort), guarantee=quota, limit=quota)
        for queue in range(shape.queues_of_cohort):
            yield QueueRule(
                _queue(cohort, queue),
                guarantee={"cpus": NOMINAL_CPUS},
                borrow={"cpus": BORROWED_CPUS},
            )


def _cohort(cohort: int) -> str:
    return f"cohort-{cohort}"


def _queue(cohort: int, queue: int) -> str:
    return f"{_cohort(cohort)}/cq-{queue}"


def trace_of(shape: Shape) -> list[TraceJob]:
    """Every workload, in the order of arrival."""
    rows = [
        _row(cohort, queue, kind, number)
        for cohort in range(shape.cohorts)
        for queue in range(shape.queues_of_cohort)
        for kind in shape.classes
        for number in range(kind.count)
    ]
    return sorted(rows, key=lambda row: row.submit_s)


def _row(cohort: int, queue: int, kind: WorkClass, number: int) -> TraceJob:
    return TraceJob(
        job_id=f"{kind.name}-{cohort}-{queue}-{number}",
        submit_s=(number + 1) * kind.every_s,
        duration_s=kind.run_s,
        members=kind.pods,
        gpus_per_member=0,
        queue=_queue(cohort, queue),
        priority=kind.priority,
        cpus_per_member=kind.cpus,
    )


def class_of(row_id: str) -> str:
    """The class of a row by its id."""
    return row_id.partition("-")[0]


def jobs_of(shape: Shape) -> Callable[[TraceJob], Job]:
    """What makes a job of a row."""
    kinds = {kind.name: kind for kind in shape.classes}

    def job(row: TraceJob) -> Job:
        kind, number = kinds[class_of(row.job_id)], int(row.job_id.rpartition("-")[2])
        role = Role(ROLE, row.members, MemberShape(cpus=row.cpus_per_member))
        return replace(job_of(row), roles=(role,), topology=_wish(kind, number))

    return job


def _wish(kind: WorkClass, number: int) -> TopologySpec:
    """What workload `number` of a class asks of the topology: first those that require, then prefer, then slices."""
    if number < kind.required:
        return TopologySpec(required=RACK)
    if number < kind.required + kind.preferred:
        return TopologySpec(preferred=RACK)
    if number < kind.required + kind.preferred + kind.sliced:
        return TopologySpec(slices=(Slices(kind.slice_pods, RACK),))
    return TopologySpec()
