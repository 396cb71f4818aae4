"""From a job to the search: which of its wishes is granted.

    preferred       the strictest of `preferred.wishes` that has a place
    apart           on an occupancy without the domains of the others (`placement.request.apart`)
    spread evenly   with as few members in one domain as can be: the smallest limit under which the gang fits; over
                    GPUs, of which members have parts, one on each where they all fit so

Evenness comes before being together: of the domains that the limit leaves a gang goes to as few as it can. Where no
wish is granted, the reasons are in `placement.refusal.refusal`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from gantree.model.jobs import Job
from gantree.placement.counting.solve import solvable
from gantree.placement.request.apart import kept_apart
from gantree.placement.request.preferred import wishes
from gantree.placement.request.topology_request import Wish
from gantree.topology.occupancy.occupancy import Occupancy

Place = TypeVar("Place")
Find = Callable[[Occupancy, Wish], Place | None]


def granted(occupancy: Occupancy, job: Job, find: Find[Place]) -> Place | None:
    """What `find` finds for the strictest wish of a job that it finds a place for. Raises as `read_wish`."""
    for wish in wishes(occupancy.fabric, job):
        if wish.apart:
            found = find(*_evened(kept_apart(occupancy, wish.apart), wish))
        elif wish.even:
            found = find(*_evened(occupancy, wish))
        else:
            found = find(occupancy, wish)
        if found is not None:
            return found
    return None


def grantable(occupancy: Occupancy, wish: Wish) -> bool:
    """Whether a wish has a place."""
    return solvable(kept_apart(occupancy, wish.apart) if wish.apart else occupancy, wish)


def _evened(occupancy: Occupancy, wish: Wish) -> tuple[Occupancy, Wish]:
    """The wish with limits for the roles that are to be spread evenly, as they stand where it has no place at all."""
    if wish.even_on_gpus:
        alone = replace(wish, one_member_per_gpu=True)
        wish = alone if solvable(occupancy, alone) else wish
    if wish.even and solvable(occupancy, wish):
        for number, role in enumerate(wish.roles):
            if role.even_at:
                wish = _fewest_in_one(occupancy, wish, number)
    return occupancy, wish


def _fewest_in_one(occupancy: Occupancy, wish: Wish, number: int) -> Wish:
    """The wish with the smallest limit for a role under which it fits; what fits under one fits under a larger one."""
    role = wish.roles[number]
    step = role.multiple_in_domain[role.even_at]
    low, high = 1, -(-role.members // step)
    while low < high:
        middle = (low + high) // 2
        if solvable(occupancy, _limited(wish, number, middle * step)):
            high = middle
        else:
            low = middle + 1
    return _limited(wish, number, high * step)


def _limited(wish: Wish, number: int, most: int) -> Wish:
    """The wish with at most so many members of a role in each domain over which it is spread."""
    roles = list(wish.roles)
    role = roles[number]
    limits = tuple(
        min(limit, most) if tier >= role.even_at else limit
        for tier, limit in enumerate(role.most_in_domain)
    )
    roles[number] = replace(role, most_in_domain=limits)
    return replace(wish, roles=tuple(roles))
