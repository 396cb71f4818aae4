"""defragment: the jobs that are drawn, and how much of a wait had enough GPUs free."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.experiments.sharing.defragment import DAYS, blocked_s, rows_of, value
from gantree.sim.record import Sample
from gantree.sim.results import JobRow

GPUS = 8


def waited(submit_s: float, start_s: float, gpus: int) -> JobRow:
    return JobRow("j", "q", submit_s, start_s, None, 1, 0, 1, gpus, 0.0, "running", "")


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, GPUS)), min_size=1, max_size=8),
    st.integers(0, 20),
    st.integers(0, 30),
    st.integers(1, GPUS),
)
def test_what_was_free_second_by_second(
    steps: list[tuple[int, int]], submit_s: int, wait_s: int, gpus: int
) -> None:
    samples, at_s = [Sample(0.0, 0.0, 0)], 0
    for gap_s, held in steps:
        at_s += gap_s
        samples.append(Sample(float(at_s), float(held), 0))
    row = waited(float(submit_s), float(submit_s + wait_s), gpus)
    assert blocked_s(row, samples, GPUS) == twin(row, samples)


def twin(row: JobRow, samples: Sequence[Sample]) -> float:
    assert row.first_start_s is not None
    total = 0.0
    for second in range(int(row.submit_s), int(row.first_start_s)):
        held = [sample.held_gpus for sample in samples if sample.at_s <= second][-1]
        total += GPUS - held >= row.gpus
    return total


def test_the_jobs_of_a_seed_have_about_the_load_and_fit_a_quarter_of_the_site() -> None:
    gpus = value("nodes") * 8
    loads = []
    for seed in range(1, 11):
        rows = rows_of(seed)
        assert max(row.members * row.gpus_per_member for row in rows) <= gpus / 4
        gpu_s = sum(row.duration_s * row.members * row.gpus_per_member for row in rows)
        loads.append(gpu_s / (gpus * DAYS * 86_400))
    assert sum(loads) / len(loads) == pytest.approx(value("load"), rel=0.05)
    assert rows_of(1) == rows_of(1) != rows_of(2)
