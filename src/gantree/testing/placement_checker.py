"""Checks placements independently of the search, from the job, the cluster and what was free."""

from collections import Counter
from fnmatch import fnmatchcase

from gantree.model.cluster import Node
from gantree.model.jobs import Apart, Job, Role, Slices
from gantree.model.placements import FABRIC_TIER, MemberPlacement, Placement
from gantree.testing.parts_checker import part_problems
from gantree.topology.occupancy.occupancy import Occupancy


def problems_of(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    """What is wrong with a placement of a job on an occupancy that does not hold it yet; [] if nothing.

    Being together inside a node is not judged here, nor what is only preferred.
    """
    return [
        *_gang(job, placement),
        *_devices(occupancy, job, placement),
        *part_problems(occupancy, job, placement),
        *_capacity(occupancy, placement),
        *_together(occupancy, job, placement),
        *_slices(occupancy, job, placement),
        *_spread(occupancy, job, placement),
        *_apart(occupancy, job, placement),
        *_spares(occupancy, placement),
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
        if sorted(member.devices) != sorted(shape.devices):
            problems.append(f"{member} has other devices than {shape}")
        if len(devices) < shape.gpus + shape.nics or devices & taken:
            problems.append(f"{member} has a device twice")
        if any(device not in free for _, device in devices) or not occupancy.usable(member.node):
            problems.append(f"{member} has a device that is not free")
        model = occupancy.fabric.cluster.machines[node.machine].gpu
        if not node.admits(shape.labels) or (shape.models and model not in shape.models):
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
        if run.role in (None, role.name) and not run.preferred
        if run.required in occupancy.fabric.cluster.tiers
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


def _spread(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    """Each role by itself; of tiers inside a node the whole node is counted, GPUs are judged as parts."""
    problems = []
    for role in job.roles:
        for spread in (job.topology.spread, role.topology.spread):
            if spread is None or spread.at_most is None or spread.tier == "gpu":
                continue
            tier = spread.tier if spread.tier in occupancy.fabric.cluster.tiers else "node"
            in_domain = Counter(
                _path(occupancy, member, tier) for member in _of_role(placement, role)
            )
            problems += [
                f"{path} has {count} members of role {role.name}, at most {spread.at_most} may be in one {tier}"
                for path, count in in_domain.items()
                if count > spread.at_most
            ]
    return problems


def _apart(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    wishes = [*job.topology.apart, *(wish for role in job.roles for wish in role.topology.apart)]
    return [
        f"{member} is in one {wish.tier} with {owner}"
        for wish in wishes
        for owner, others in occupancy.owners.items()
        if _is_of(owner, wish)
        for member in placement.members
        if _near(occupancy, member, others, wish.tier)
    ]


def _is_of(owner: str, wish: Apart) -> bool:
    """Whether an owner ("chat-1", "3:chat-1", "site:chat-1") is one of the jobs that a wish names."""
    return any(
        fnmatchcase(name, each) for name in (owner, owner.split(":", 1)[-1]) for each in wish.jobs
    )


def _near(
    occupancy: Occupancy, member: MemberPlacement, others: tuple[MemberPlacement, ...], tier: str
) -> bool:
    at = tier if tier in occupancy.fabric.cluster.tiers else "node"
    here = _path(occupancy, member, at)
    return any(_path(occupancy, other, at) == here for other in others)


def _spares(occupancy: Occupancy, placement: Placement) -> list[str]:
    """Where nodes are held back, a gang leaves so many of a domain's wholly free nodes, or takes none of them."""
    cluster = occupancy.fabric.cluster
    held = {member.node for members in occupancy.owners.values() for member in members}
    taken = {member.node for member in placement.members}
    free = [node for node in cluster.nodes if node.name not in held and occupancy.usable(node.name)]
    problems = []
    for tier, count in cluster.spares.items():
        depth = 0 if tier == FABRIC_TIER else cluster.tiers.index(tier) + 1
        free_in = Counter((*node.at, node.name)[:depth] for node in free)
        left_in = Counter((*node.at, node.name)[:depth] for node in free if node.name not in taken)
        problems += [
            f"{tier} {path} has {left_in[path]} free nodes left, {count} are held back"
            for path, before in free_in.items()
            if left_in[path] < min(count, before)
        ]
    return problems
