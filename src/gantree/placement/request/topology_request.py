"""The topology request of a job in numbers of one fabric: computed once, then searched.

A request for an outer tier becomes, per role and tier, the number by which every domain's members must be divisible
(`multiple_in_domain`), the most that a domain may hold (`most_in_domain`), and the tier at which the role must be whole
(`whole_at`, 0 where it may spread over all). A request for a tier inside the node becomes layers
(`placement.machine.intra_node`) and makes the role whole, or divisible, per node. A spread binds each role by itself,
whether the job or the role asks for it; for a tier inside the node it counts for the whole node, which is stricter, but
for "gpu", which whole GPUs keep anyway and parts of GPUs keep by `one_member_per_gpu`.

Only requirements are read here; preferences are in `placement.request.preferred_topology`, anti-affinity to other jobs
in `placement.request.anti_affinity`, even spreading in `placement.counting.preferred_topology_fallback`. The numbers of
a topology are cached by tiers; only the path to an error, which names the job, reads everything again.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from math import lcm

from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Apart, Job, Role, Shape, Slices, Spread, TopologySpec
from gantree.placement.machine.intra_node import ALL, INNER_TIERS, Layers
from gantree.text.words import plural
from gantree.topology.fabric.fabric import Fabric

ANY_NUMBER = 1 << 40
"""Most members of a domain without a limit."""

MOST_CACHED = 4096
"""Distinct topologies that are cached; a site has some dozens."""


MOST_SITES = 8
"""Lists of tiers of which the last request is cached: equal jobs come one after the other."""


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """One role: multiple_in_domain[tier], whole_at a tier number, layers inside a node, most_in_domain[tier].

    even_at is the tier over whose domains the members are spread as evenly as there is room, 0 for none. among is the
    name of the nodes that may be used (`Fabric.nodes_named`), None for all.
    """

    name: str
    members: int
    shape: Shape
    multiple_in_domain: tuple[int, ...]
    whole_at: int = 0
    layers: Layers = ()
    most_in_domain: tuple[int, ...] = ()
    even_at: int = 0
    among: Hashable = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a most that a domain may hold."""
        return bool(self.most_in_domain) and self.most_in_domain[-1] < ANY_NUMBER


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """A gang: all roles within one domain of tier whole_at; together is an inner tier for all GPUs, or None.

    contradiction is a plain sentence where the request can never be met on any fabric. apart: other jobs whose domains
    are not used. one_member_per_gpu: no two members may have parts of the same GPU, because ranks_talk to each other or
    a spread says so. even: some role is spread as evenly as there is room; even_on_gpus: over GPUs, of which members
    have parts.
    """

    roles: tuple[RoleRequest, ...]
    whole_at: int = 0
    together: str | None = None
    contradiction: str = ""
    apart: tuple[Apart, ...] = ()
    one_member_per_gpu: bool = True
    even: bool = False
    ranks_talk: bool = True
    even_on_gpus: bool = False


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The numbers of the gang's topology and the role's own, for one role; runs are the sizes of its slices."""

    gang_whole_at: int
    together: str | None
    multiple_in_domain: tuple[int, ...]
    whole_at: int
    layers: Layers
    most_in_domain: tuple[int, ...]
    even_at: int
    runs: tuple[int, ...]


_LAST: dict[tuple[str, ...], tuple[Job, TopologyRequest]] = {}
"""By tiers the last job of one role, and its request. It depends only on the fields that `has_gang_of` compares."""


def allowed_tiers(fabric: Fabric) -> tuple[str, ...]:
    """Tiers that a job may name, widest first."""
    return _allowed(fabric.tiers)


def topology_request_of(fabric: Fabric, job: Job) -> TopologyRequest:
    """The requirements of a job on the topology, in numbers.

    Raises BadInput for a tier that the fabric does not have, for roles that are named twice or missing, for a member
    that requests a GPU in two ways; Unsupported for slices inside a node that do not nest.
    """
    known = _LAST.get(fabric.tiers)
    if known is not None and job.has_gang_of(known[0]):
        return known[1]
    topology, roles = job.topology, job.roles
    if len(roles) != 1 or topology.apart or roles[0].topology.apart:
        return _read_gang(fabric, job)
    role = roles[0]
    if (topology.slices or role.topology.slices) and _names_another_role(job, role):
        return _read_gang(fabric, job)
    bounds = _bounds(fabric.tiers, topology, role.topology, role.name)
    if bounds is None or role.members < 1 or role.shape.part:
        return _read_gang(fabric, job)
    request = TopologyRequest(
        (_role_request(role, bounds),),
        bounds.gang_whole_at,
        bounds.together,
        _contradiction(role, bounds),
        even=bounds.even_at > 0,
    )
    if len(_LAST) >= MOST_SITES:
        _LAST.clear()
    _LAST[fabric.tiers] = (job, request)
    return request


def slices_of(job: Job, role: Role) -> tuple[Slices, ...]:
    """The slices that must bind a role, largest first; not those that are only preferred."""
    return _binding(job.topology, role.topology, role.name)


# ----- requirements


def _names_another_role(job: Job, role: Role) -> bool:
    slices = (*job.topology.slices, *role.topology.slices)
    return any(run.role not in (None, role.name) for run in slices)


def _read_gang(fabric: Fabric, job: Job) -> TopologyRequest:
    """As `topology_request_of`, without the cache."""
    _check(fabric, job)
    roles, problems, bounds = [], [], None
    for role in job.roles:
        bounds = _bounds(fabric.tiers, job.topology, role.topology, role.name)
        assert bounds is not None, "checked before"
        roles.append(_role_request(_with_neighbours(job, role), bounds))
        problems.append(_contradiction(role, bounds) or _shared_by_ranks(job, role))
    assert bounds is not None
    limits = [spread.at_most for spread in _over_gpus(job)]
    return TopologyRequest(
        tuple(roles),
        bounds.gang_whole_at,
        bounds.together,
        next(filter(None, problems), ""),
        tuple(
            dict.fromkeys(
                apart
                for request in _topologies(job)
                for apart in request.apart
                if not apart.preferred
            )
        ),
        job.communicates or 1 in limits,
        any(role.even_at for role in roles) or None in limits,
        job.communicates,
        None in limits,
    )


def _over_gpus(job: Job) -> Iterator[Spread]:
    """Spreads over GPUs, which bind only members with parts of GPUs."""
    if any(role.shape.part for role in job.roles):
        spreads = (topology.spread for topology in _topologies(job))
        yield from (spread for spread in spreads if spread is not None and spread.tier == "gpu")


def _with_neighbours(job: Job, role: Role) -> Role:
    """The role; if its members never communicate, other jobs may share their GPUs: no member waits for the slowest."""
    shape = role.shape
    if job.communicates or shape.mig is not None or not shape.part or shape.neighbours:
        return role
    return replace(role, shape=replace(shape, neighbours=True))


def _role_request(role: Role, bounds: _Bounds) -> RoleRequest:
    return RoleRequest(
        role.name,
        role.members,
        role.shape,
        bounds.multiple_in_domain,
        bounds.whole_at,
        bounds.layers,
        bounds.most_in_domain,
        bounds.even_at,
    )


@lru_cache(MOST_CACHED)
def _bounds(
    tiers: tuple[str, ...], of_gang: TopologySpec, of_role: TopologySpec, role: str
) -> _Bounds | None:
    """The bounds of one role; None if something in them is wrong; `_check` then raises."""
    if any(tier not in _allowed(tiers) for _, tier in _named_tiers("", of_gang)):
        return None
    if any(tier not in _allowed(tiers) for _, tier in _named_tiers("", of_role)):
        return None
    if next(_bad_numbers(of_gang), None) or next(_bad_numbers(of_role), None):
        return None
    gang_whole_at, together = _tier(tiers, of_gang.required)
    whole_at, inner = _tier(tiers, of_role.required)
    slices = _binding(of_gang, of_role, role)
    if _not_nested(slices) is not None:
        return None
    of_slices = [(run.members, tier) for run in slices if (tier := _tier(tiers, run.required)[1])]
    return _Bounds(
        gang_whole_at,
        together,
        _multiples(tiers, slices),
        whole_at,
        (*(((ALL, inner),) if inner else ()), *of_slices),
        _most(tiers, (of_gang.spread, of_role.spread)),
        _even_at(tiers, of_role.spread or of_gang.spread),
        tuple(run.members for run in slices),
    )


def _binding(of_gang: TopologySpec, of_role: TopologySpec, role: str) -> tuple[Slices, ...]:
    slices = [
        run
        for run in (*of_gang.slices, *of_role.slices)
        if run.role in (None, role) and not run.preferred
    ]
    return tuple(sorted(slices, key=lambda run: -run.members))


def _multiples(tiers: tuple[str, ...], slices: Sequence[Slices]) -> tuple[int, ...]:
    """By tier: a domain holds whole slices of its own tier and of all narrower ones."""
    multiple = [1] * len(tiers)
    for run in slices:
        tier, _ = _tier(tiers, run.required)
        multiple[tier] = lcm(multiple[tier], run.members)
    for tier in range(len(tiers) - 2, -1, -1):
        multiple[tier] = lcm(multiple[tier], multiple[tier + 1])
    return tuple(multiple)


def _most(tiers: tuple[str, ...], spreads: Sequence[Spread | None]) -> tuple[int, ...]:
    """By tier: a domain holds no more than any domain around it may."""
    most = [ANY_NUMBER] * len(tiers)
    for spread in spreads:
        if spread is not None and spread.at_most is not None and spread.tier != "gpu":
            tier, _ = _tier(tiers, spread.tier)
            most[tier] = min(most[tier], spread.at_most)
    for tier in range(1, len(tiers)):
        most[tier] = min(most[tier], most[tier - 1])
    return tuple(most)


def _even_at(tiers: tuple[str, ...], spread: Spread | None) -> int:
    if spread is None or spread.at_most is not None or spread.tier == "gpu":
        return 0
    return _tier(tiers, spread.tier)[0]


def _tier(tiers: tuple[str, ...], name: str | None) -> tuple[int, str | None]:
    """(outer tier number, inner tier name): an inner tier is within one node."""
    if name is None:
        return 0, None
    if name in tiers[1:]:
        return tiers.index(name), None
    return len(tiers) - 1, name


def _allowed(tiers: tuple[str, ...]) -> tuple[str, ...]:
    return (*tiers[1:], *(tier for tier in INNER_TIERS if tier not in tiers[1:]))


def _contradiction(role: Role, bounds: _Bounds) -> str:
    for run in bounds.runs:
        if role.members % run:
            return (
                f"role {role.name} has {plural(role.members, 'member')}, "
                f"which do not divide into slices of {run}"
            )
    most, whole_at = bounds.most_in_domain, max(bounds.whole_at, bounds.gang_whole_at)
    if most[-1] == ANY_NUMBER:
        return ""
    if whole_at and role.members > most[whole_at]:
        return (
            f"all {role.members} members of role {role.name} must be in one domain, "
            f"where a spread allows {most[whole_at]}"
        )
    for multiple, limit in zip(bounds.multiple_in_domain, most, strict=True):
        if multiple > limit:
            return (
                f"slices of role {role.name} put {multiple} members into one domain, "
                f"where a spread allows {limit}"
            )
    return ""


def _shared_by_ranks(job: Job, role: Role) -> str:
    """NCCL compares the bus ids of the ranks on a host and ends with "Duplicate GPU detected" (ncclInvalidUsage)."""
    if not (job.communicates and role.shape.part and role.processes > 1):
        return ""
    return (
        f"a member of role {role.name} runs {role.processes} ranks on a part of one GPU, and NCCL refuses two ranks on "
        f"one GPU; ask for one process a member, or say `communicates: false` if they never talk to each other"
    )


# ----- bad input


def _check(fabric: Fabric, job: Job) -> None:
    names = [role.name for role in job.roles]
    if not names or len(set(names)) != len(names):
        raise BadInput(f"job {job.name}: roles must be named once each, found {names}")
    wheres = [("topology", job.topology)]
    wheres += [(f"role {role.name}: topology", role.topology) for role in job.roles]
    for where, topology in wheres:
        for field, tier in _named_tiers(where, topology):
            if tier not in allowed_tiers(fabric):
                raise BadInput(f"job {job.name}: {field}: {_unknown(tier, allowed_tiers(fabric))}")
        for problem in _bad_numbers(topology):
            raise BadInput(f"job {job.name}: {where}.{problem}")
        for run in topology.slices:
            if run.role is not None and run.role not in names:
                raise BadInput(f"job {job.name}: slices: no role {run.role!r}; allowed: {names}")
    for spread in _over_gpus(job):
        if not job.communicates and (spread.at_most or 1) > 1:
            raise Unsupported(
                f"job {job.name}: topology.spread: {spread.at_most} members with parts of one GPU cannot be counted by "
                f"this version; leave at_most out (as evenly as there is room), or say 1"
            )
    for role in job.roles:
        if role.members < 1:
            raise BadInput(f"job {job.name}: role {role.name}: members must be at least 1")
        _check_part(job, role)
        _check_layers(job, role)


def _check_part(job: Job, role: Role) -> None:
    """A member has whole GPUs, or one MIG instance, or one share."""
    shape = role.shape
    ways = {
        "gpus": bool(shape.gpus),
        "mig": shape.mig is not None,
        "gpu_share": shape.gpu_share is not None or shape.gpu_memory_GiB is not None,
    }
    asked = [f"each.{way}" for way, wanted in ways.items() if wanted]
    if len(asked) > 1:
        raise BadInput(
            f"job {job.name}: role {role.name}: {' and '.join(asked)}: a member takes whole GPUs, one MIG instance "
            f"or a share of one GPU; leave one of them"
        )
    if shape.gpu_share is not None and not 0 < shape.gpu_share <= 1:
        raise BadInput(
            f"job {job.name}: role {role.name}: each.gpu_share: found {shape.gpu_share:g}, "
            f"must be above 0 and at most 1"
        )


def _check_layers(job: Job, role: Role) -> None:
    """Slices inside a node are searched run in run, so their sizes must nest (`placement.machine.intra_node`)."""
    clash = _not_nested(slices_of(job, role))
    if clash is not None:
        outer, inner = clash
        raise Unsupported(
            f"job {job.name}: role {role.name}: slices of {inner.members} in one {inner.required} and of "
            f"{outer.members} in one {outer.required}, which do not nest, cannot be placed by this version"
        )


def _not_nested(slices: Sequence[Slices]) -> tuple[Slices, Slices] | None:
    inside = [run for run in slices if run.required in INNER_TIERS]
    return next((pair for pair in pairwise(inside) if pair[0].members % pair[1].members), None)


def _topologies(job: Job) -> Sequence[TopologySpec]:
    return (job.topology, *(role.topology for role in job.roles))


def _named_tiers(where: str, request: TopologySpec) -> Iterator[tuple[str, str]]:
    named = (("required", request.required), ("preferred", request.preferred))
    yield from ((f"{where}.{field}", tier) for field, tier in named if tier is not None)
    yield from ((f"{where}.slices.required", run.required) for run in request.slices)
    if request.spread is not None:
        yield f"{where}.spread.tier", request.spread.tier
    yield from ((f"{where}.apart.tier", apart.tier) for apart in request.apart)
    if request.near is not None:
        yield f"{where}.near.tier", request.near.tier


def _bad_numbers(request: TopologySpec) -> Iterator[str]:
    """What is wrong with the numbers of a topology, as "field: problem"."""
    if any(run.members < 1 for run in request.slices):
        yield "slices: members must be at least 1"
    if (
        request.spread is not None
        and request.spread.at_most is not None
        and request.spread.at_most < 1
    ):
        yield "spread: at_most must be at least 1"


def _unknown(tier: str, allowed: Sequence[str]) -> str:
    near = get_close_matches(tier, allowed, n=1)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    return f"found `{tier}`, which is no tier here; allowed: {', '.join(allowed)}.{hint}"
