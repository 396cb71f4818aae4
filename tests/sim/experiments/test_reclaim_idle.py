"""reclaim-idle: the closed form against periods that are drawn."""

from random import Random

import pytest

from gantree.sim.experiments.experiment import Bench, Judgement
from gantree.sim.experiments.sharing.reclaim_idle import regained, run


@pytest.mark.parametrize("threshold_s", [0.0, 615.0, 900.0])
def test_what_comes_back_is_what_lies_beyond_the_threshold(threshold_s: float) -> None:
    random = Random(1)
    idle, period_s, restart_s, resumed = 0.4, 1800.0, 60.0, 0.65
    periods_s = [random.expovariate(1 / period_s) for _ in range(200_000)]
    back_s = 0.0
    for length_s in periods_s:
        if length_s > threshold_s:
            back_s += length_s - threshold_s - (restart_s if random.random() < resumed else 0.0)
    held_s = sum(periods_s) / idle
    found = regained(idle, period_s, threshold_s, restart_s, resumed)
    assert found == pytest.approx(back_s / held_s, rel=0.02)


def test_the_verdict_is_open() -> None:
    assert [verdict.judgement for verdict in run(Bench()).verdicts] == [Judgement.OPEN]
