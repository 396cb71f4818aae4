"""Falls back from preferred topology: searches the requests of a job from the strictest to the plain one.

    preferred       the strictest of `preferred_topology.requests_by_strictness` that has a place
    apart           searched on an occupancy without the excluded domains (`placement.request.anti_affinity`);
                    preferred rules exclude domains with more of the other jobs than the emptiest, then than the next
    spread evenly   the smallest limit on members of one domain under which the gang fits; where members share GPUs,
                    one member on each GPU if all fit so

Even spreading has priority over few domains: within the limit, a gang uses as few domains as possible. If no request
fits, `placement.refusal.refusal` explains why.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from gantree.model.jobs import Job
from gantree.placement.counting.solve import solvable
from gantree.placement.request.anti_affinity import as_binding, without_excluded_domains
from gantree.placement.request.preferred_topology import requests_by_strictness
from gantree.placement.request.topology_request import TopologyRequest
from gantree.topology.occupancy.occupancy import Occupancy

Place = TypeVar("Place")
Find = Callable[[Occupancy, TopologyRequest], Place | None]


def place_with_fallback(occupancy: Occupancy, job: Job, find: Find[Place]) -> Place | None:
    """Return what `find` finds for the strictest request that has a place, or None. Raises as `topology_request_of`."""
    for variant in as_binding(occupancy, job):
        for request in requests_by_strictness(occupancy.fabric, variant):
            found = place_as_requested(occupancy, request, find)
            if found is not None:
                return found
    return None


def place_as_requested(
    occupancy: Occupancy, request: TopologyRequest, find: Find[Place]
) -> Place | None:
    """Return what `find` finds away from the domains that are excluded, and as evenly as is requested."""
    if request.apart:
        return find(*_evened(without_excluded_domains(occupancy, request.apart), request))
    return find(*_evened(occupancy, request)) if request.even else find(occupancy, request)


def has_place(occupancy: Occupancy, request: TopologyRequest) -> bool:
    """Return whether a request has a place."""
    return solvable(
        without_excluded_domains(occupancy, request.apart) if request.apart else occupancy, request
    )


def _evened(occupancy: Occupancy, request: TopologyRequest) -> tuple[Occupancy, TopologyRequest]:
    """The request with limits for the roles that are to be spread evenly; unchanged if it has no place at all."""
    if request.even_on_gpus:
        alone = replace(request, one_member_per_gpu=True)
        request = alone if solvable(occupancy, alone) else request
    if request.even and solvable(occupancy, request):
        for number, role in enumerate(request.roles):
            if role.even_at:
                request = _fewest_in_one(occupancy, request, number)
    return occupancy, request


def _fewest_in_one(occupancy: Occupancy, request: TopologyRequest, number: int) -> TopologyRequest:
    """The request with the smallest limit for a role under which it fits; a larger limit always fits, too."""
    role = request.roles[number]
    step = role.multiple_in_domain[role.even_at]
    low, high = 1, -(-role.members // step)
    while low < high:
        middle = (low + high) // 2
        if solvable(occupancy, _limited(request, number, middle * step)):
            high = middle
        else:
            low = middle + 1
    return _limited(request, number, high * step)


def _limited(request: TopologyRequest, number: int, most: int) -> TopologyRequest:
    """The request with at most so many members of a role in each domain over which it is spread."""
    roles = list(request.roles)
    role = roles[number]
    limits = tuple(
        min(limit, most) if tier >= role.even_at else limit
        for tier, limit in enumerate(role.most_in_domain)
    )
    roles[number] = replace(role, most_in_domain=limits)
    return replace(request, roles=tuple(roles))
