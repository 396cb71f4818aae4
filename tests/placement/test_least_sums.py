"""Least sums over vectors of counts, against the loop over all pairs."""

from itertools import product
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.placement.counting.least_sums import INFINITE, Costs, least_sum, part_of
from gantree.topology.fabric.fabric import IntArray
from support.examples import examples


def some_costs(rng: Random, roles: int, *, closed: bool) -> Costs:
    """A cost that begins with 0 for nobody, has few distinct values, and something in its last corner's rows."""
    shape = tuple(rng.randint(1, 4) for _ in range(roles))
    drawn = [[rng.choice([1, 2, 3, 5, int(INFINITE)]) for _ in range(int(np.prod(shape)))]]
    of: IntArray = np.array(drawn, dtype=np.int64).reshape(shape)
    if closed:
        for axis in range(roles):
            of = np.maximum.accumulate(of, axis=axis)
    of.flat[0] = 0
    return Costs(of, closed).trimmed()


def plain_sum(rest: Costs, cost: Costs, members: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """least[x] by trying every pair."""
    least: dict[tuple[int, ...], int] = {}
    for a in product(*map(range, rest.of.shape)):
        for b in product(*map(range, cost.of.shape)):
            x = tuple(i + j for i, j in zip(a, b, strict=True))
            total = min(int(rest.of[a]) + int(cost.of[b]), int(INFINITE))
            if all(i <= most for i, most in zip(x, members, strict=True)):
                least[x] = min(total, least.get(x, int(INFINITE)))
    return least


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans(), st.booleans())
def test_least_sums_are_those_of_all_pairs(seed: int, roles: int, one: bool, other: bool) -> None:
    rng = Random(seed)
    rest, cost = some_costs(rng, roles, closed=one), some_costs(rng, roles, closed=other)
    members = tuple(rng.randint(4, 8) for _ in range(roles))
    total, plain = least_sum(rest, cost, members), plain_sum(rest, cost, members)
    for x in product(*(range(most + 1) for most in members)):
        inside = all(count < size for count, size in zip(x, total.of.shape, strict=True))
        found = min(int(total.of[x]), int(INFINITE)) if inside else int(INFINITE)
        assert found == plain.get(x, int(INFINITE)), x


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_the_part_is_the_largest_of_the_cheapest_splits(
    seed: int, roles: int, closed: bool
) -> None:
    rng = Random(seed)
    rest, cost = some_costs(rng, roles, closed=closed), some_costs(rng, roles, closed=closed)
    total = least_sum(rest, cost, (8,) * roles)
    for x in product(*map(range, total.of.shape)):
        least = int(total.of[x])
        if least >= INFINITE:
            continue
        splits = [
            y
            for y in product(*map(range, cost.of.shape))
            if all(0 <= a - b < n for a, b, n in zip(x, y, rest.of.shape, strict=True))
            and int(cost.of[y]) + int(rest.of[tuple(a - b for a, b in zip(x, y, strict=True))])
            == least
        ]
        assert part_of(rest.of, cost.of, x, least) == max(splits)
