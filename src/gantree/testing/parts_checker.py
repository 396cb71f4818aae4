"""Checks parts of GPUs for `placement_checker`: MIG instances, shares, and which may be on one GPU.

It reads the job, the cluster, what is held, and the tables of MIG profiles; nothing of the search.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from gantree.model.jobs import Job, Shape, Spread
from gantree.model.placements import MemberPlacement, MigPart, Placement, SharePart
from gantree.topology.hardware.mig import MigTable, mig_table
from gantree.topology.occupancy.occupancy import Occupancy

Gpu = tuple[str, int]
"""(node, GPU)."""
NEARLY = 1e-6


def part_problems(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    """What is wrong with the parts of GPUs that a placement hands out; [] if nothing."""
    shape_of = {role.name: role.shape for role in job.roles}
    return [
        *(p for member in placement.members for p in _as_asked(member, shape_of[member.role])),
        *_two_on_one_gpu(job, placement),
        *_neighbours(occupancy, job, placement),
        *_overlaps(occupancy, placement),
        *_too_much_shared(occupancy, placement),
    ]


def _as_asked(member: MemberPlacement, shape: Shape) -> Iterator[str]:
    if [part.profile for part in member.mig] != ([shape.mig] if shape.mig else []):
        yield f"{member} has other MIG instances than {shape}"
    asks_share = shape.gpu_share is not None or shape.gpu_memory_GiB is not None
    if (member.share is not None) != asks_share:
        yield f"{member} has a share or none, other than {shape}"
    if member.share is None:
        return
    if member.share.compute < (shape.gpu_share or 0) - NEARLY:
        yield f"{member} has less of the compute than {shape}"
    if member.share.memory_GiB < (shape.gpu_memory_GiB or 0) - 1e-3:
        yield f"{member} has less of the memory than {shape}"
    if shape.isolation is not None and member.share.isolation != shape.isolation:
        yield f"{member} is shared another way than {shape}"


def _two_on_one_gpu(job: Job, placement: Placement) -> list[str]:
    """Ranks that talk to each other, and members of which a GPU may hold one, are on GPUs of their own."""
    spreads = [job.topology.spread, *(role.topology.spread for role in job.roles)]
    one_on_each = Spread("gpu", 1) in spreads
    if not (job.communicates or one_on_each):
        return []
    owner_of: dict[Gpu, MemberPlacement] = {}
    problems = []
    for member in placement.members:
        for gpu in (*member.gpus, *member.parts):
            other = owner_of.setdefault((member.node, gpu), member)
            if other is not member:
                problems.append(f"{member} is on one GPU with {other}")
    return problems


def _neighbours(occupancy: Occupancy, job: Job, placement: Placement) -> list[str]:
    """A rank that allows no neighbours has nobody else on the GPU it shares, unless no other of the gang has a GPU."""
    allows = {role.name: role.shape.neighbours for role in job.roles}
    with_gpus = [member for member in placement.members if member.gpus or member.parts]
    if not job.communicates or len(with_gpus) < 2:
        return []
    tenants = _tenants(held for members in occupancy.owners.values() for held in members)
    return [
        f"{member} has neighbours on its GPU"
        for member in placement.members
        if member.share is not None
        and not allows[member.role]
        and (not member.share.alone or tenants.get((member.node, member.share.gpu)))
    ]


def _overlaps(occupancy: Occupancy, placement: Placement) -> list[str]:
    """Instances on one GPU share no memory slice; nobody has a GPU whole, or in part, that is cut for others."""
    all_held = [held for members in occupancy.owners.values() for held in members]
    instances: dict[Gpu, list[MigPart]] = {}
    for held in (*all_held, *placement.members):
        for part in held.mig:
            instances.setdefault((held.node, part.gpu), []).append(part)
    whole = {(held.node, gpu) for held in (*all_held, *placement.members) for gpu in held.gpus}
    shared = _tenants((*all_held, *placement.members))
    problems = [
        f"{gpu} is cut and whole or shared" for gpu in instances if gpu in whole or gpu in shared
    ]
    problems += [f"{gpu} is whole and shared" for gpu in shared if gpu in whole]
    for gpu, parts in instances.items():
        runs = sorted(_run(occupancy, gpu[0], part) for part in parts)
        if any(first[1] > then[0] for first, then in pairwise(runs)):
            problems.append(f"instances on {gpu} overlap: {parts}")
        if _table(occupancy, gpu[0]).uniform and len({part.profile for part in parts}) > 1:
            problems.append(f"{gpu} is in two modes at once: {parts}")
    return problems


def _run(occupancy: Occupancy, node: str, part: MigPart) -> tuple[int, int]:
    """Memory slices of an instance: from, up to."""
    profile = _table(occupancy, node).profile(part.profile)
    return part.start, part.start + profile.memory_slices


def _table(occupancy: Occupancy, node: str) -> MigTable:
    cluster, index = occupancy.fabric.cluster, occupancy.fabric.index_of_node[node]
    table = mig_table(cluster.machines[occupancy.fabric.nodes[index].machine].gpu)
    assert table is not None, f"an instance on GPUs of {node}, which have none"
    return table


def _too_much_shared(occupancy: Occupancy, placement: Placement) -> list[str]:
    """Tenants of a GPU hold no more than all of its compute, share it one way, and are as many as the node allows."""
    node_of = {node.name: node for node in occupancy.fabric.cluster.nodes}
    all_held = [held for members in occupancy.owners.values() for held in members]
    problems = []
    for (node, gpu), tenants in _tenants((*all_held, *placement.members)).items():
        limit, ways = node_of[node].tenants, {tenant.isolation for tenant in tenants}
        if sum(tenant.compute for tenant in tenants) > 1 + NEARLY:
            problems.append(f"GPU {gpu} of {node} is promised more than once: {tenants}")
        if len(ways) > 1 or not ways <= set(node_of[node].shares):
            problems.append(f"GPU {gpu} of {node} is shared in ways {sorted(ways)}")
        if limit is not None and len(tenants) > limit:
            problems.append(f"GPU {gpu} of {node} has {len(tenants)} tenants, {limit} are allowed")
        if len(tenants) > 1 and any(tenant.alone for tenant in tenants):
            problems.append(f"GPU {gpu} of {node} is shared though a tenant is alone")
    return problems


def _tenants(members: Iterable[MemberPlacement]) -> dict[Gpu, list[SharePart]]:
    tenants: dict[Gpu, list[SharePart]] = {}
    for member in members:
        if member.share is not None:
            tenants.setdefault((member.node, member.share.gpu), []).append(member.share)
    return tenants
