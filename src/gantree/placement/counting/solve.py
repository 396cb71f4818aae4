"""From a request to the cheapest spread: the GPU models to try, and the search for each case.

Where a role names several GPU models, each is tried alone, best first; a mix of them is the last resort. Roles that
ask for the same are searched as one (`placement.counting.equal_roles`).
"""

from collections.abc import Hashable, Iterator
from itertools import product

from gantree.placement.counting.equal_roles import EqualRoles
from gantree.placement.counting.exact import exact_spread
from gantree.placement.counting.greedy import greedy_spread, is_too_large_for_tables
from gantree.placement.counting.one_role import one_role_fits, one_role_spread
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.placement.slots.problem import Problem, Spread
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

Solution = tuple[Problem, Spread]


def solve(
    occupancy: Occupancy, request: TopologyRequest, among: Hashable = None
) -> Solution | None:
    """The best spread of a gang, with the problem it answers; None where the gang does not fit.

    among names the nodes that may be used (`Fabric.nodes_named`), None for all.
    """
    for problem in problems(occupancy, request, among):
        spread = spread_of(problem)
        if spread is not None:
            return problem, spread
    return None


def solvable(occupancy: Occupancy, request: TopologyRequest) -> bool:
    """Whether `solve` would find a place."""
    return any(map(_has_place, problems(occupancy, request)))


def spread_of(problem: Problem) -> Spread | None:
    """The cheapest spread; None where there is none."""
    if len(problem.members) == 1:
        return one_role_spread(problem)
    roles = EqualRoles.of(problem)
    spread = _spread_of_unlike(roles.joined)
    return None if spread is None else roles.split(spread)


def _spread_of_unlike(problem: Problem) -> Spread | None:
    if len(problem.members) == 1:
        return one_role_spread(problem)
    quick = greedy_spread(problem) if is_too_large_for_tables(problem) else None
    return quick or exact_spread(problem)


def _has_place(problem: Problem) -> bool:
    joined = problem if len(problem.members) == 1 else EqualRoles.of(problem).joined
    if len(joined.members) == 1:
        return one_role_fits(joined)
    return _spread_of_unlike(joined) is not None


def problems(
    occupancy: Occupancy, request: TopologyRequest, among: Hashable = None
) -> Iterator[Problem]:
    """Yield the problems of a request, one for each choice of GPU models, best first."""
    if not request.contradiction:
        for models_of_role in _choices_of_models(occupancy.fabric, request):
            yield Problem.of(occupancy, request, models_of_role, among)


def _choices_of_models(
    fabric: Fabric, request: TopologyRequest
) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Models for each role: single ones before mixes, better ones first."""
    choices = [_models(fabric, role) for role in request.roles]
    if all(len(choice) == 1 for choice in choices):
        yield tuple(choice[0] for choice in choices)
        return
    numbered = product(*(range(len(choice)) for choice in choices))
    for numbers in sorted(numbered, key=lambda chosen: _mixes(choices, chosen)):
        yield tuple(choice[number] for choice, number in zip(choices, numbers, strict=True))


def _mixes(choices: list[list[tuple[str, ...]]], numbers: tuple[int, ...]) -> int:
    return sum(len(choice[number]) > 1 for choice, number in zip(choices, numbers, strict=True))


def _models(fabric: Fabric, role: RoleRequest) -> list[tuple[str, ...]]:
    """Each model that the fabric has alone, best first, then all of them; without GPUs no model is better."""
    models = role.shape.models
    if not models or not (role.shape.gpus or role.shape.part):
        return [models]
    present = {machine.gpu for machine in fabric.machines}
    usable = tuple(model for model in dict.fromkeys(models) if model in present)
    alone: list[tuple[str, ...]] = [(model,) for model in usable]
    return alone if len(alone) == 1 else [*alone, models]
