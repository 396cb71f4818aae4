"""What a job asks of the topology, in numbers of one fabric: read once, then searched.

A wish for an outer tier becomes, per role and tier, the number by which every domain's members must be divisible
(`multiple_in_domain`) and the tier at which the role must be whole (`whole_at`, 0 where it may spread over all). A
wish for a tier inside the node becomes layers (`placement.inside`) and makes the role whole, or divisible, per node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from math import lcm

from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Job, Role, Shape, Slices
from gantree.placement.inside import ALL, INNER_TIERS, Layers
from gantree.topology.fabric import Fabric


@dataclass(frozen=True, slots=True)
class RoleWish:
    """One role: multiple_in_domain[tier], whole_at a tier number, layers inside a node."""

    name: str
    members: int
    shape: Shape
    multiple_in_domain: tuple[int, ...]
    whole_at: int = 0
    layers: Layers = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """A gang: all roles within one domain of tier whole_at; together is an inner tier for all GPUs, or None.

    contradiction is a plain sentence where the wish can never be met on any fabric.
    """

    roles: tuple[RoleWish, ...]
    whole_at: int = 0
    together: str | None = None
    contradiction: str = ""


def allowed_tiers(fabric: Fabric) -> tuple[str, ...]:
    """Tiers that a job may name, widest first."""
    outer = fabric.tiers[1:]
    return (*outer, *(tier for tier in INNER_TIERS if tier not in outer))


def read_wish(fabric: Fabric, job: Job) -> Wish:
    """Put a job's wish into numbers.

    Raises BadInput for a tier that the fabric has not and for roles that are named twice or not there,
    Unsupported for shares, MIG profiles and other devices.
    """
    _check(fabric, job)
    tier, inner = _tier(fabric, job.topology.required)
    roles = tuple(_read_role(fabric, job, role) for role in job.roles)
    problems = [_contradiction(job, role) for role in job.roles]
    return Wish(roles, tier, inner, next(filter(None, problems), ""))


def slices_of(job: Job, role: Role) -> tuple[Slices, ...]:
    """The slices that bind a role, largest first."""
    of_job = [s for s in job.topology.slices if s.role in (None, role.name)]
    of_role = [s for s in role.topology.slices if s.role in (None, role.name)]
    return tuple(sorted((*of_job, *of_role), key=lambda s: -s.members))


def _read_role(fabric: Fabric, job: Job, role: Role) -> RoleWish:
    whole_at, inner = _tier(fabric, role.topology.required)
    layers = [(ALL, inner)] if inner else []
    multiple = [1] * len(fabric.tiers)
    for run in slices_of(job, role):
        tier, inner = _tier(fabric, run.required)
        if inner:
            layers.append((run.members, inner))
        multiple[tier] = lcm(multiple[tier], run.members)
    for tier in range(len(multiple) - 2, -1, -1):
        multiple[tier] = lcm(multiple[tier], multiple[tier + 1])
    _check_layers(job, role, layers)
    return RoleWish(role.name, role.members, role.shape, tuple(multiple), whole_at, tuple(layers))


def _check_layers(job: Job, role: Role, layers: Sequence[tuple[int, str]]) -> None:
    """Slices inside a node are searched run in run, so their sizes must nest (`placement.inside`)."""
    sized = [layer for layer in layers if layer[0] != ALL]
    for (outer, outer_tier), (inner, inner_tier) in pairwise(sized):
        if outer % inner:
            raise Unsupported(
                f"job {job.name}: role {role.name}: slices of {inner} in one {inner_tier} and of {outer} in one "
                f"{outer_tier}, which do not nest, cannot be placed by this version"
            )


def _tier(fabric: Fabric, name: str | None) -> tuple[int, str | None]:
    """(outer tier number, inner tier name): an inner tier is within one node."""
    if name is None:
        return 0, None
    if name in fabric.tiers[1:]:
        return fabric.tiers.index(name), None
    return fabric.node_tier, name


def _contradiction(job: Job, role: Role) -> str:
    for run in slices_of(job, role):
        if role.members % run.members:
            return (
                f"role {role.name} has {role.members} members, "
                f"which do not divide into slices of {run.members}"
            )
    return ""


def _check(fabric: Fabric, job: Job) -> None:
    names = [role.name for role in job.roles]
    if not names or len(set(names)) != len(names):
        raise BadInput(f"job {job.name}: roles must be named once each, found {names}")
    for where, tier in _named_tiers(job):
        if tier is not None and tier not in allowed_tiers(fabric):
            raise BadInput(f"job {job.name}: {where}: {_unknown(tier, allowed_tiers(fabric))}")
    for run in _all_slices(job):
        if run.role is not None and run.role not in names:
            raise BadInput(f"job {job.name}: slices: no role {run.role!r}; allowed: {names}")
        if run.members < 1:
            raise BadInput(f"job {job.name}: slices: members must be at least 1")
    for role in job.roles:
        if role.members < 1:
            raise BadInput(f"job {job.name}: role {role.name}: members must be at least 1")
        _check_shape(job, role)


def _unknown(tier: str, allowed: Sequence[str]) -> str:
    near = get_close_matches(tier, allowed, n=1)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    return f"found `{tier}`, which is no tier here; allowed: {', '.join(allowed)}.{hint}"


def _check_shape(job: Job, role: Role) -> None:
    for field in ("mig", "gpu_share", "gpu_memory_GiB", "devices"):
        if getattr(role.shape, field):
            raise Unsupported(
                f"job {job.name}: role {role.name}: each.{field} cannot be placed by this version"
            )


def _named_tiers(job: Job) -> Iterable[tuple[str, str | None]]:
    wishes = [("topology", job.topology)]
    wishes += [(f"role {role.name}: topology", role.topology) for role in job.roles]
    for where, wish in wishes:
        yield f"{where}.required", wish.required
        yield f"{where}.preferred", wish.preferred
        yield from ((f"{where}.slices.required", run.required) for run in wish.slices)


def _all_slices(job: Job) -> Sequence[Slices]:
    of_roles = [run for role in job.roles for run in role.topology.slices]
    return [*job.topology.slices, *of_roles]
