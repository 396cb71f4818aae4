"""Replicas of a day: as many run at each moment as its requests need, and no part bears more than its p99 allows."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.experiments.sharing import replica
from gantree.sim.experiments.sharing.replica import (
    DAY_S,
    PARTS,
    STEP_S,
    WHOLE,
    demand,
    highest_load,
    mean_p99,
    replica_rows,
)


@given(st.floats(0.5, 20), st.floats(0.1, 1.0), st.floats(0.0, 1.0), st.integers(1, 2))
def test_as_many_replicas_run_as_the_moment_needs(
    busy: float, load: float, trough: float, days: int
) -> None:
    rows = list(replica_rows(WHOLE, busy, load, days, trough))
    assert len({row.job_id for row in rows}) == len(rows)
    for at_s in range(0, days * DAY_S, 7 * STEP_S):
        running = sum(row.submit_s <= at_s < row.submit_s + row.duration_s for row in rows)
        assert running == ceil(busy * demand(at_s, trough) / load - 1e-9)


def test_a_day_has_the_mean_of_trough_and_peak() -> None:
    steps = range(0, DAY_S, STEP_S)
    assert demand(4 * 3600, 0.4) == pytest.approx(0.4)
    assert demand(16 * 3600, 0.4) == pytest.approx(1.0)
    assert sum(demand(at_s, 0.4) for at_s in steps) / len(steps) == pytest.approx(0.7)


@pytest.mark.parametrize("part", PARTS[:2] + PARTS[4:5])
def test_a_part_bears_no_more_than_its_p99_allows(
    part: replica.Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "REQUESTS", 4_000)
    load = highest_load(part, 8.0, (1,))
    assert mean_p99(part, load, (1,)) <= 8.0 < mean_p99(part, load + 0.02, (1,))


def test_rows_ask_for_the_part_of_a_gpu() -> None:
    asked = {
        part.name: next(iter(replica_rows(part, 1.0, 0.5, 1, 0.4))) for part in PARTS if part.share
    }
    assert {row.gpu_share for row in asked.values()} == {0.5, 0.33, 0.25}
    assert {row.gpus_per_member for row in asked.values()} == {0}
    assert next(iter(replica_rows(PARTS[4], 1.0, 0.5, 1, 0.4))).mig == "3g.40gb"
