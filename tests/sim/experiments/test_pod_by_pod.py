"""Pods bound one by one: what hangs, what a timeout costs, and that gangs waste nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.sim.experiments.queueing.pod_by_pod import GangJob, PodByPod
from support.examples import examples

TWO = [GangJob("a", 0, 100, 4, 8), GangJob("b", 0, 100, 4, 8)]
HORIZON_S = 10_000.0

jobs = st.lists(
    st.builds(
        lambda submit_s, duration_s, members, gpus: (submit_s, duration_s, members, gpus),
        st.integers(0, 50), st.integers(1, 50), st.integers(1, 4), st.integers(1, 4),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


def _run(jobs: list[GangJob], *, gang: bool, timeout_s: float | None, seed: int = 1) -> PodByPod:
    return PodByPod(4, 4, jobs, gang=gang, timeout_s=timeout_s, seed=seed)


def test_two_gangs_hang_with_partial_allocation() -> None:
    found = PodByPod(6, 8, TWO, gang=False, timeout_s=None, seed=1).run(HORIZON_S)
    assert (found.finished, found.hung) == (0, 2)
    assert found.wasted_gpu_s == 6 * 8 * HORIZON_S


def test_a_timeout_lets_both_finish_and_costs_gpu_seconds() -> None:
    found = PodByPod(6, 8, TWO, gang=False, timeout_s=30, seed=1).run(HORIZON_S)
    assert (found.finished, found.hung) == (2, 0)
    assert found.released >= 1
    assert found.wasted_gpu_s > 0


def test_gangs_run_one_after_the_other_and_waste_nothing() -> None:
    found = PodByPod(6, 8, TWO, gang=True, timeout_s=None, seed=1).run(HORIZON_S)
    assert (found.finished, found.wasted_gpu_s, found.until_s) == (2, 0, 200)


@pytest.mark.parametrize("timeout_s", [None, 7.0])
@given(drawn=jobs, seed=st.integers(0, 99), gang=st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_no_node_is_overfull_and_every_job_is_counted_once(
    timeout_s: float | None, drawn: list[tuple[int, int, int, int]], seed: int, gang: bool
) -> None:
    gangs = [GangJob(f"j{number}", *each) for number, each in enumerate(drawn)]
    run = _run(gangs, gang=gang, timeout_s=None if gang else timeout_s, seed=seed)
    found = run.run(HORIZON_S)
    assert found.finished + found.hung + found.never_bound == len(gangs)
    assert all(0 <= free <= 4 for free in run._free)
    if gang or timeout_s is not None:
        assert found.hung == 0
    if gang:
        assert found.wasted_gpu_s == 0
    if not found.hung:
        assert run._free == [4] * 4
