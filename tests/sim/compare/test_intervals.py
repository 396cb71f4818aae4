"""Intervals over seeds: quantiles as tables have them, pairs by seed, and what an interval promises."""

from math import gamma, pi, sqrt
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.compare.intervals import difference, estimate, t_quantile


def t_distribution(t: float, degrees: int, steps: int = 4_000) -> float:
    """P(T <= t) by Simpson's rule over the density, for t of 0 or more."""
    scale = gamma((degrees + 1) / 2) / (sqrt(degrees * pi) * gamma(degrees / 2))
    width = t / steps
    heights = [(1 + (n * width) ** 2 / degrees) ** (-(degrees + 1) / 2) for n in range(steps + 1)]
    area = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    return float(0.5 + scale * area * width / 3)


@pytest.mark.parametrize("degrees", [*range(1, 31), 31, 40, 60, 120, 200])
def test_quantiles_leave_two_and_a_half_percent_above(degrees: int) -> None:
    assert t_distribution(t_quantile(degrees), degrees) == pytest.approx(0.975, abs=2e-5)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_an_interval_is_the_mean_and_t_standard_errors_around_it(values: list[float]) -> None:
    told = estimate(values)
    assert told is not None and told.low is not None and told.high is not None
    half = t_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    assert told.mean == pytest.approx(mean(values))
    assert told.count == len(values)
    assert (told.low, told.high) == pytest.approx((told.mean - half, told.mean + half), abs=1e-6)


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    told = estimate([3.0])
    assert told is not None and (told.mean, told.low, told.high) == (3.0, None, None)
    assert estimate([]) is None


def test_differences_are_taken_seed_by_seed() -> None:
    """Seeds differ by hundreds, variants by 1: only pairs see it. A seed that one of them lacks does not count."""
    first: dict[int | None, float] = {1: 100, 2: 300, 3: 700, 9: 5}
    other: dict[int | None, float] = {3: 701, 1: 101, 2: 301, 8: 9}
    told = difference(first, other)
    assert told is not None and (told.mean, told.low, told.high, told.count) == (1, 1, 1, 3)
    assert difference({1: 1.0}, {2: 1.0}) is None


def test_an_interval_holds_the_true_mean_in_nineteen_of_twenty_cases() -> None:
    draw, held = Random(5), 0
    for _ in range(2_000):
        told = estimate([draw.gauss(10, 3) for _ in range(5)])
        assert told is not None and told.low is not None and told.high is not None
        held += told.low <= 10 <= told.high
    assert 0.935 <= held / 2_000 <= 0.965
