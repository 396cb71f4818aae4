"""Further candidate places beside the one found by counting: they may be faster, or fragment less.

    kinds            the same search among the nodes of each kind alone
    sound, data      among nodes of which less is worn or busy, or nearer to the data, even if it needs more domains
    free GPUs        where machines have links of several classes: another node for a gang that fits one, one for each
                     set of free GPUs; for others the nodes alone whose free GPUs are linked best
                     (`placement.choice.linked`); these and kinds only if they need no more domains
    filled           one node full after the other instead of evenly, for a job that tells its traffic: what slows it
                     down a little may leave whole nodes to others
    exact            what OR-Tools finds in the time that the policy gives it (`placement.optimum.optimum`)

Only places of the same choice of GPU models are candidates, and, where one domain of the tier that the gang prefers can
hold it, only such places: what a gang prefers goes before speed.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace

from gantree.model.jobs import Job
from gantree.placement.choice.linked import well_linked
from gantree.placement.counting.one_role import one_role_spread
from gantree.placement.counting.solve import Solution, solve
from gantree.placement.request.locality import nodes_with_data
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.scoring.traffic_classes import has_uneven_machines, node_sets
from gantree.placement.slots.problem import Problem, Spread
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

MOST_NODES = 1024
"""Nodes whose sets of free GPUs are told apart, the first in topology order."""


def candidates(
    occupancy: Occupancy,
    request: TopologyRequest,
    job: Job,
    found: Solution,
    preferences: PlacementPreferences,
) -> list[Solution]:
    """All places to compare, each once: at first the one that was found."""
    places: dict[tuple[tuple[int, tuple[int, ...]], ...], Solution] = {}
    preferred = _preferred_tier(occupancy.fabric, job, found)
    for other in _each(occupancy, request, job, found, preferences):
        if preferred is None or _domains(other)[preferred] == 1:
            places.setdefault(tuple(other[1]), other)
    return list(places.values())


def _preferred_tier(fabric: Fabric, job: Job, found: Solution) -> int | None:
    """The tier of the site that the gang prefers, if the place found is in one domain of it; None for no such tier."""
    of_role = job.roles[0].topology.preferred if len(job.roles) == 1 else None
    preferred = job.topology.preferred or of_role
    if preferred not in fabric.tiers:
        return None
    tier = fabric.tiers.index(preferred)
    return tier if _domains(found)[tier] == 1 else None


def _each(
    occupancy: Occupancy,
    request: TopologyRequest,
    job: Job,
    found: Solution,
    preferences: PlacementPreferences,
) -> Iterator[Solution]:
    yield found
    speed = price_differs(job)
    if job.data:
        yield from _among(occupancy, request, found, nodes_with_data(occupancy.fabric, job.data))
    if speed:
        sets = node_sets(occupancy.fabric)
        domains = _domains(found)
        alike = list(_among(occupancy, request, found, sets.kinds))
        if has_uneven_machines(occupancy.fabric):
            yield from _of_other_gpus(found)
            alike += well_linked(request, found)
        yield from (other for other in alike if _domains(other) == domains)
        yield from _among(occupancy, request, found, sets.sound)
        yield from _filled(job, found)
    if speed and preferences.exact_s:
        yield from _exact(job, found, preferences)


def price_differs(job: Job) -> bool:
    """Whether traffic or arithmetic of the job can be faster in one place than in another."""
    if job.gpus > 1:
        return job.communicates
    return job.gpus == 1 and declares_traffic(job)


def declares_traffic(job: Job) -> bool:
    """Whether a job has a predicted step."""
    return job.trains is not None or job.traffic is not None or job.serving is not None


def _among(
    occupancy: Occupancy, request: TopologyRequest, found: Solution, names: tuple[Hashable, ...]
) -> Iterator[Solution]:
    for name in names:
        other = solve(occupancy, request, name)
        if other is not None and other[0].models_of_role == found[0].models_of_role:
            yield other


def _domains(found: Solution) -> tuple[int, ...]:
    """How many domains of each tier a place uses, widest first."""
    problem, spread = found
    nodes = [node for node, _ in spread]
    return tuple(len(set(domains[nodes].tolist())) for domains in problem.fabric.domain_of_node)


def _of_other_gpus(found: Solution) -> Iterator[Solution]:
    """The same gang on another node, one for each machine and set of free GPUs; the tightest nodes first."""
    problem, spread = found
    fabric, occupancy = problem.fabric, problem.occupancy
    if len(spread) > 1 or len(problem.members) > 1:
        return
    slots, free = problem.tables[0].of_node, occupancy.free_gpus_of_node
    nodes = (slots >= problem.members[0]).nonzero()[0][:MOST_NODES]
    seen = set()
    for node in nodes[free[nodes].argsort(kind="stable")].tolist():
        key = (int(fabric.machine_index_of_node[node]), occupancy.free_mask_of_node[node])
        if key not in seen:
            seen.add(key)
            yield problem, [(node, problem.members)]


def _filled(job: Job, found: Solution) -> Iterator[Solution]:
    problem, spread = found
    if len(spread) > 1 and len(problem.members) == 1 and declares_traffic(job):
        filled: Problem = replace(problem, even=False)
        other: Spread | None = one_role_spread(filled)
        if other is not None:
            yield problem, other


def _exact(job: Job, found: Solution, preferences: PlacementPreferences) -> Iterator[Solution]:
    from gantree.placement.optimum.optimum import faster_spread  # noqa: PLC0415 - OR-Tools is an extra

    spread = faster_spread(*found, job, preferences.exact_s)
    if spread is not None:
        yield found[0], spread
