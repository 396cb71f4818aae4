"""A judge of placements that shares nothing with the search: it reads the job, the cluster and what was free."""

from collections import Counter

from gantree.model.cluster import Node
from gantree.model.jobs import Job, Role, Slices
from gantree.model.placements import MemberPlacement, Placement
from gantree.topology.occupancy import Occupancy


def problems_of(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    """What is wrong with a placement of a job on an occupancy that does not hold it yet; [] if nothing.

    Wishes for tiers inside a node are not judged here.
    """
    return [
        *_gang(job, placement),
        *_devices(occupancy, job, placement),
        *_capacity(occupancy, placement),
        *_together(occupancy, job, placement),
        *_slices(occupancy, job, placement),
    ]


def domains_used(occupancy: Occupancy, placement: Placement) -> dict[str, int]:
    """How many domains of each tier a placement uses."""
    tiers = occupancy.fabric.cluster.tiers
    return {
        tier: len({_path(occupancy, member, tier) for member in placement.members})
        for tier in tiers
    }


def _node(occupancy: Occupancy, member: MemberPlacement) -> Node:
    return next(node for node in occupancy.fabric.cluster.nodes if node.name == member.node)


def _path(occupancy: Occupancy, member: MemberPlacement, tier: str) -> tuple[str, ...]:
    node = _node(occupancy, member)
    return (*node.at, node.name)[: occupancy.fabric.cluster.tiers.index(tier) + 1]


def _of_role(placement: Placement, role: Role) -> list[MemberPlacement]:
    return [member for member in placement.members if member.role == role.name]


def _gang(job: Job, placement: Placement) -> list[str]:
    problems = []
    for role in job.roles:
        ranks = [member.rank for member in _of_role(placement, role)]
        if ranks != list(range(role.members)):
            problems.append(f"role {role.name}: ranks {ranks}, wants {role.members} in order")
    return problems


def _devices(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    problems, taken = [], set[tuple[str, str | int]]()
    shape_of = {role.name: role.shape for role in job.roles}
    for member in placement.members:
        shape, node = shape_of[member.role], _node(occupancy, member)
        free: set[str | int] = {
            *occupancy.free_gpus(member.node),
            *occupancy.free_nics(member.node),
        }
        held: tuple[str | int, ...] = (*member.gpus, *member.nics)
        devices = {(member.node, device) for device in held}
        if (len(member.gpus), len(member.nics)) != (shape.gpus, shape.nics):
            problems.append(f"{member} has another number of devices than {shape}")
        if len(devices) < shape.gpus + shape.nics or devices & taken:
            problems.append(f"{member} has a device twice")
        if any(device not in free for _, device in devices) or not occupancy.usable(member.node):
            problems.append(f"{member} has a device that is not free")
        model = occupancy.fabric.cluster.machines[node.machine].gpu
        if not set(shape.labels) <= set(node.labels) or (
            shape.models and model not in shape.models
        ):
            problems.append(f"{member}: its node is not admitted by {shape}")
        taken |= devices
    return problems


def _capacity(occupancy: Occupancy, placement: Placement) -> list[str]:
    after = occupancy.copy()
    try:
        after.take("the gang under judgement", placement.members)
    except AssertionError as clash:
        return [str(clash)]
    return []


def _together(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    wishes = [(job.topology.required, list(placement.members))]
    wishes += [(role.topology.required, _of_role(placement, role)) for role in job.roles]
    return [
        f"{len(members)} members are not in one {tier}"
        for tier, members in wishes
        if tier in occupancy.fabric.cluster.tiers
        and len({_path(occupancy, member, tier) for member in members}) > 1
    ]


def _slices(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    return [
        problem
        for role in job.roles
        for run in (*job.topology.slices, *role.topology.slices)
        if run.role in (None, role.name) and run.required in occupancy.fabric.cluster.tiers
        for problem in _broken(occupancy, run, _of_role(placement, role))
    ]


def _broken(occupancy: Occupancy, run: Slices, members: list[MemberPlacement]) -> list[str]:
    paths = [_path(occupancy, member, run.required) for member in members]
    runs = [paths[start : start + run.members] for start in range(0, len(paths), run.members)]
    problems = [
        f"slice {number} spans {len(set(r))} {run.required}"
        for number, r in enumerate(runs)
        if len(set(r)) > 1
    ]
    odd = [path for path, count in Counter(paths).items() if count % run.members]
    return [*problems, *(f"{path} has a part of a slice" for path in odd)]
