"""preemption: one job's loss against what the clock says, and the draw of production jobs."""

import pytest

from gantree.formats.traces import TraceJob
from gantree.sim.experiments.inputs import trace
from gantree.sim.experiments.reliability.preemption import (
    ASKED,
    LATE_S,
    STOPPED,
    alone,
    with_production,
)


@pytest.mark.parametrize("late_s", LATE_S)
def test_a_job_that_is_stopped_at_once_loses_what_it_did_since_its_checkpoint_and_a_start(
    late_s: float,
) -> None:
    twice, lost = alone((STOPPED, late_s))
    assert twice == pytest.approx(late_s / 60)
    assert lost == pytest.approx(late_s / 60 + 5)


@pytest.mark.parametrize("late_s", LATE_S[1:])
def test_a_job_that_is_asked_to_save_loses_a_save_and_a_start(late_s: float) -> None:
    twice, lost = alone((ASKED, late_s))
    assert twice == 0
    assert lost == pytest.approx(20 / 60 + 5)


def test_production_is_drawn_by_job_and_seed_alone_and_never_a_large_job() -> None:
    rows = trace("muri-trace3")
    drawn = {row.job_id: row.priority for row in with_production(rows, 1)}
    assert {row.job_id: row.priority for row in with_production(rows[::-1], 1)} == drawn
    share = list(drawn.values()).count("production") / len(rows)
    assert 0.15 < share < 0.25
    large = [TraceJob(str(number), 0.0, 1.0, 9, 8) for number in range(50)]
    assert {row.priority for row in with_production(large, 1)} == {"batch"}
