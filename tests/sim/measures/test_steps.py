"""Means, least and most of step functions over parts of the time, against plain twins."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.measures.steps import Changes, edges, means, parts_of

CHANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(-5, 9)), max_size=20)
STEPS = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9)), min_size=2, max_size=20)


@given(CHANGES, st.integers(-5, 30), st.integers(1, 40), st.integers(1, 9))
def test_means_are_those_of_a_sum_second_by_second(
    changes: list[tuple[int, int]], start_s: int, length_s: int, parts: int
) -> None:
    """Parts of whole seconds; within a second nothing changes."""
    at = np.arange(parts + 1, dtype=np.float64) * length_s + start_s
    found = means(Changes((float(when), float(by)) for when, by in changes), at)
    value_of_second = [
        sum(by for when, by in changes if when <= second)
        for second in range(start_s, start_s + parts * length_s)
    ]
    expected = [
        sum(value_of_second[part * length_s : (part + 1) * length_s]) / length_s
        for part in range(parts)
    ]
    assert found.tolist() == pytest.approx(expected)


@given(STEPS, st.integers(1, 12))
def test_parts_keep_the_area_the_least_and_the_most(
    lengths: list[tuple[int, int]], count: int
) -> None:
    steps, at_s = [], 0.0
    for length_s, value in lengths:
        steps.append((at_s, float(value)))
        at_s += length_s
    found = parts_of(steps, edges(0.0, steps[-1][0], count))
    area = sum(v * (b - a) for (a, v), (b, _) in pairwise(steps))
    assert sum(part.mean for part in found) * steps[-1][0] / count == pytest.approx(area, abs=1e-6)
    seen = [value for _, value in steps[:-1]]
    assert min(part.least for part in found) == min(seen)
    assert max(part.most for part in found) == max(seen)
    assert all(part.least - 1e-9 <= part.mean <= part.most + 1e-9 for part in found)


def test_no_time_has_no_parts() -> None:
    assert len(edges(5.0, 5.0, 10)) == 0
    assert means(Changes([(0.0, 1.0)]), edges(5.0, 5.0, 10)).tolist() == []
    assert parts_of([(5.0, 1.0)], edges(5.0, 5.0, 10)) == []
