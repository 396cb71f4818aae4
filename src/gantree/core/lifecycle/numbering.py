"""Global ranks of the processes of a placed gang, decided with the placement and recorded with it.

How ranks are ordered is `placement.ranks.rank_order`. A gang that does not say how it is parallel, that fits a node, or
that is very large, follows member order, and nothing is asked for it; nor under a policy that places blindly. Recorded,
so that replay, recovery and an order that is sent again use the same map, whatever a later version would decide.
"""

from dataclasses import replace

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.ranks.rank_order import rank_map
from gantree.topology.fabric.fabric import Fabric

MOST_PROCESSES = 4096
"""Larger gangs keep member order: a better one would hold up the turn for half a second and more."""


def numbered(fabric: Fabric, job: Job, placement: Placement) -> Placement:
    """The placement with its ranks, where they differ from member order, and with the step that they come to."""
    if not any(ways > 1 for _, ways in job.parallelism) or job.processes > MOST_PROCESSES:
        return placement
    if len({member.node for member in placement.members}) < 2:
        return placement
    found = rank_map(fabric, job, placement)
    if not found.moved:
        return placement
    rank_of = {(placed.role, placed.member, placed.process): placed.rank for placed in found.ranks}
    processes = {role.name: role.processes for role in job.roles}
    ranks = tuple(
        rank_of[member.role, member.rank, process]
        for member in placement.members
        for process in range(processes[member.role])
    )
    predicted = replace(placement.predicted, step_s=found.step_s)
    return replace(placement, ranks=ranks, predicted=predicted)
