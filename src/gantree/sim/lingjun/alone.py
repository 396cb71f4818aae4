"""The promise of cells: no job of a queue starts later in the shared cluster than in a private one of its cells, plus
the grace that lent GPUs are handed back with.

The private cluster of a queue holds its whole nodes in one leaf, and each of its loose GPUs on a node of its own, for
a loose GPU may be anywhere; its policy is the same, without queues. A shared run keeps the promise if every job that
starts alone also starts there, and at most grace_s later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster, Machine, Node
from gantree.policy.rules import LOOSE, Policy
from gantree.sim.lingjun.philly import known_gang_of
from gantree.sim.lingjun.subfabric import GPUS_OF_HOST, MACHINE
from gantree.sim.results import JobRow
from gantree.sim.run import simulate
from gantree.topology.hardware.catalog import machine


@dataclass(frozen=True, slots=True)
class Promise:
    """How one queue fared: jobs of it that could start alone, those that started later than promised, by how much."""

    queue: str
    gpus: int
    jobs: int
    late: int
    worst_s: float
    mean_wait_alone_s: float | None
    mean_wait_shared_s: float | None


def private_cluster(gpus: int) -> Cluster:
    """The cells of a queue of so many GPUs, as a cluster."""
    whole, loose = divmod(gpus, GPUS_OF_HOST)
    nodes = [Node(f"p{number}", MACHINE, ("leaf",)) for number in range(whole)]
    nodes += [Node(f"loose{number}", LOOSE, ("leaf",)) for number in range(loose)]
    machines = {MACHINE: machine(MACHINE), LOOSE: Machine(LOOSE, 1, machine(MACHINE).gpu)}
    return Cluster(name="private", tiers=("leaf", "node"), machines=machines, nodes=tuple(nodes))


def held_against(
    shared: Sequence[JobRow],
    trace: Sequence[TraceJob],
    policy: Policy,
    queue: str,
    gpus: int,
    grace_s: float,
) -> Promise:
    """Run a queue alone, and hold the rows of the shared run against it. Who owns nothing is promised nothing."""
    alone = _alone([row for row in trace if row.queue == queue], policy, gpus) if gpus else ()
    shared_of_job = {row.job_id: row for row in shared}
    could = [row for row in alone if row.wait_s is not None]
    late_by_s = [_late_by_s(row, shared_of_job[row.job_id]) - grace_s for row in could]
    shared_waits_s = [shared_of_job[row.job_id].wait_s for row in could]
    return Promise(
        queue,
        gpus,
        len(could),
        sum(late_s > 0 for late_s in late_by_s),
        max(late_by_s, default=0.0),
        _mean([row.wait_s for row in could]),
        _mean(shared_waits_s),
    )


def _alone(rows: Sequence[TraceJob], policy: Policy, gpus: int) -> Sequence[JobRow]:
    return simulate(
        private_cluster(gpus), rows, replace(policy, queues=()), jobs=known_gang_of
    ).jobs


def _late_by_s(alone: JobRow, shared: JobRow) -> float:
    """How much later it started in the shared cluster; a job that never did is late by for ever."""
    if alone.wait_s is None or shared.wait_s is None:
        return float("inf")
    return shared.wait_s - alone.wait_s


def _mean(waits_s: Sequence[float | None]) -> float | None:
    known = [wait_s for wait_s in waits_s if wait_s is not None]
    return sum(known) / len(known) if known else None
