"""health: formulas against plain twins, and a short run."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.experiments.reliability.health import (
    best_interval_s,
    expected_ettr,
    failures_per_day,
)


@given(st.floats(0.1, 20), st.floats(1, 120))
def test_young_s_interval_loses_no_more_than_others(per_day: float, save_s: float) -> None:
    def lost(interval_s: float) -> float:
        return save_s / interval_s + per_day / 86_400 * interval_s / 2

    best = best_interval_s(per_day, save_s)
    assert all(lost(best) <= lost(best * factor) + 1e-12 for factor in (0.5, 0.9, 1.1, 2.0))


def test_the_expected_ratio_counts_each_failure_and_each_save() -> None:
    failures = 4
    saving = 1 / (1 + 20 / 900)
    failing = 1 - failures * (300 + 450) / 86_400
    assert expected_ettr(failures, 900, 20, 300) == pytest.approx(failing * saving)
    assert expected_ettr(1e6, 900, 20, 300) == 0


def test_more_failures_and_longer_restarts_never_help() -> None:
    found = [expected_ettr(rate, 900, 20, 300) for rate in (0, 1, 5, 10)]
    assert all(earlier > later for earlier, later in pairwise(found))
    assert expected_ettr(5, 900, 20, 600) < expected_ettr(5, 900, 20, 300)


def test_the_rate_of_a_node_foretells_what_meta_gives_for_large_jobs() -> None:
    assert 24 / failures_per_day(2_048) == pytest.approx(1.8, rel=0.05)
    assert 24 / failures_per_day(16_384) == pytest.approx(0.23, rel=0.05)
