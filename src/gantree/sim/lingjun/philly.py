"""Philly's jobs as gangs of Lingjun hosts, and the guarantee of each of its queues (virtual clusters).

A job of up to 8 GPUs is one member; a larger one is members of 8, and a smaller one for what is left over. A queue's
guarantee is its share of all GPU-hours of the trace times the GPUs of the cluster, rounded to whole GPUs by largest
remainder. As cells it is the same in whole nodes first, then GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

from gantree.formats.traces import TraceJob
from gantree.model.jobs import Job, Role, Shape
from gantree.policy.rules import LOOSE, Policy, QueueRule
from gantree.sim.lingjun.subfabric import GPUS_OF_HOST
from gantree.sim.workload import ROLE, job_of

REST = "rest"
"""Role of the smaller member."""


def gang_of(row: TraceJob) -> Job:
    """Return the job of a row, with unknown run time."""
    whole, rest = divmod(row.members * row.gpus_per_member, GPUS_OF_HOST)
    roles = [Role(ROLE, whole, Shape(gpus=GPUS_OF_HOST))] if whole else []
    if rest:
        roles.append(Role(REST if whole else ROLE, 1, Shape(gpus=rest)))
    return replace(job_of(row), roles=tuple(roles))


def known_gang_of(row: TraceJob) -> Job:
    """Return the same job with its exact run time as expected_s."""
    return replace(gang_of(row), expected_s=row.duration_s)


def gpu_s_of_queue(trace: Sequence[TraceJob]) -> dict[str, float]:
    """GPU-seconds that the jobs of each queue run for, queues by name."""
    gpu_s: dict[str, float] = {}
    for row in trace:
        work_gpu_s = row.duration_s * row.members * row.gpus_per_member
        gpu_s[row.queue] = gpu_s.get(row.queue, 0.0) + work_gpu_s
    return dict(sorted(gpu_s.items()))


def shared_out(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """A whole number shared out by weights; what rounding down leaves goes to the largest remainders."""
    sum_of_weights = sum(weights.values())
    exact = {name: total * weight / sum_of_weights for name, weight in weights.items()}
    shares = {name: floor(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: total - sum(shares.values())]:
        shares[name] += 1
    return shares


def queues(gpus_of_queue: Mapping[str, int], *, as_cells: bool) -> tuple[QueueRule, ...]:
    """A rule for each queue: so many GPUs guaranteed, as a count or as cells; its weight is what it is owed."""
    return tuple(
        QueueRule(
            path=queue,
            weight=float(max(1, gpus)),
            guarantee={} if as_cells or not gpus else {"gpus": gpus},
            cells=cells_of(gpus) if as_cells else (),
        )
        for queue, gpus in gpus_of_queue.items()
    )


def cells_of(gpus: int) -> tuple[tuple[str, int], ...]:
    """So many GPUs in whole nodes, then one by one."""
    nodes, loose = divmod(gpus, GPUS_OF_HOST)
    return tuple((tier, count) for tier, count in (("node", nodes), (LOOSE, loose)) if count)


def with_queues(policy: Policy, gpus_of_queue: Mapping[str, int], *, as_cells: bool) -> Policy:
    """A preset on this cluster."""
    return replace(policy, queues=queues(gpus_of_queue, as_cells=as_cells))
