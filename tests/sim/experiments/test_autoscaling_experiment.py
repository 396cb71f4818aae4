"""The load of the experiment about autoscaling: what serving owns is enough, and training always has work."""

import pytest

from gantree.sim.experiments.sharing.valleys import (
    DAY_S,
    DAYS,
    GPUS,
    HOUR_S,
    LOADS,
    OWNED,
    REPLICA_GPUS,
    Valley,
    fill,
    rules,
    service,
    training,
)
from gantree.sim.running.services import level


def test_at_the_target_the_peak_needs_less_than_serving_is_guaranteed() -> None:
    most = max(level(service(0.8, 0), hour * HOUR_S) for hour in range(24)) / 0.8 * REPLICA_GPUS
    assert 0.7 * OWNED < most < OWNED
    assert {rule.guarantee["gpus"] for rule in rules().values()} == {float(OWNED)}


@pytest.mark.parametrize("largest", [8, 16, 32])
def test_training_has_work_for_the_whole_site_all_the_time(largest: int) -> None:
    rows = training(2, largest)
    gpu_s = sum(row.duration_s * row.members * row.gpus_per_member for row in rows)
    assert gpu_s >= DAYS * DAY_S * GPUS
    assert max(row.members * row.gpus_per_member for row in rows) == largest


def test_loads_lie_between_trough_and_peak_and_the_steep_one_opens_at_nine() -> None:
    for load in LOADS.values():
        assert all(0.0 <= load(600.0 * n) <= 1.0 for n in range(3 * 144))
    assert [LOADS["steep"](hour * HOUR_S) for hour in (8.9, 9.125, 9.3, 17.1)] == [0, 0.5, 1, 0]


@pytest.mark.figures
def test_training_takes_most_of_what_serving_leaves_idle() -> None:
    found = fill(Valley("unused for 15 min", 1))
    assert found.soaked > 0.8
    assert found.late < 0.01
