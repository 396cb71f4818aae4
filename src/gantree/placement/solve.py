"""From a wish to the cheapest spread: which GPU models are tried, and which search answers.

Where a role names several GPU models, each is tried alone, best first; a mix of them is the last resort.
"""

from collections.abc import Iterator
from itertools import product

from gantree.placement.exact import exact_spread
from gantree.placement.problem import Problem, Spread
from gantree.placement.wish import RoleWish, Wish
from gantree.topology.fabric import Fabric
from gantree.topology.occupancy import Occupancy


def solve(occupancy: Occupancy, wish: Wish) -> tuple[Problem, Spread] | None:
    """The best spread of a gang, with the problem it answers; None where the gang does not fit."""
    if wish.contradiction:
        return None
    for models_of_role in _choices_of_models(occupancy.fabric, wish):
        problem = Problem.of(occupancy, wish, models_of_role)
        spread = exact_spread(problem)
        if spread is not None:
            return problem, spread
    return None


def _choices_of_models(fabric: Fabric, wish: Wish) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Models for each role: single ones before mixes, better ones first."""
    choices = [_models(fabric, role) for role in wish.roles]
    if all(len(choice) == 1 for choice in choices):
        yield tuple(choice[0] for choice in choices)
        return
    numbered = product(*(range(len(choice)) for choice in choices))
    for numbers in sorted(numbered, key=lambda chosen: _mixes(choices, chosen)):
        yield tuple(choice[number] for choice, number in zip(choices, numbers, strict=True))


def _mixes(choices: list[list[tuple[str, ...]]], numbers: tuple[int, ...]) -> int:
    return sum(len(choice[number]) > 1 for choice, number in zip(choices, numbers, strict=True))


def _models(fabric: Fabric, role: RoleWish) -> list[tuple[str, ...]]:
    """Each model that the fabric has alone, best first, then all of them."""
    present = {machine.gpu for machine in fabric.machines}
    usable = tuple(model for model in dict.fromkeys(role.shape.models) if model in present)
    alone = [(model,) for model in usable]
    return alone if len(alone) == 1 else [*alone, role.shape.models]
