"""consolidation: the figures that the claim needs, the jobs that are drawn, and what counts as useful."""

from dataclasses import replace

import pytest

from gantree.sim.experiments.sharing import two_fleets
from gantree.sim.experiments.sharing.replica import PARTS, demand
from gantree.sim.experiments.sharing.two_fleets import (
    Case,
    busy_at_peak,
    fleets,
    half_of_run_s,
    load_before,
    run_case,
    service_of,
    training_rows,
    training_share,
)
from gantree.sim.running.services import level


def test_training_is_a_seventh() -> None:
    assert training_share() == pytest.approx(1 / 7)
    assert fleets("training_nodes") / (
        fleets("training_nodes") + fleets("inference_nodes")
    ) == pytest.approx(1 / 7)


def test_replicas_are_as_busy_over_the_day_as_the_claim_says() -> None:
    mean_of_day = (1 + fleets("trough")) / 2
    assert load_before() * mean_of_day * 0.55 == pytest.approx(0.25)
    assert busy_at_peak() == pytest.approx(192 * load_before())


@pytest.mark.parametrize("seed", [1, 2])
def test_training_keeps_its_fleet_as_busy_as_the_claim_says_and_comes_twice(seed: int) -> None:
    rows = training_rows(seed)
    half_s = half_of_run_s()
    halves = [[row for row in rows if (row.submit_s >= half_s) == second] for second in (False, True)]  # fmt: skip
    for half in halves:
        gpu_s = sum(row.duration_s * row.members * row.gpus_per_member for row in half)
        assert gpu_s / (32 * half_s) == pytest.approx(0.6, abs=0.002)
        assert {row.priority for row in half} == {"batch"}
    first, second = ({row.job_id.removesuffix("-again") for row in half} for half in halves)
    assert first == second


def test_the_service_has_the_load_of_the_fleet_of_inference() -> None:
    case = Case(16, 1, PARTS[2], 0.44)
    service = service_of(case)
    for at_s in (4, 10, 16, 23.5):
        busy = level(service, at_s * 3600.0) * case.load
        assert busy == pytest.approx(busy_at_peak() * demand(at_s * 3600.0, fleets("trough")), rel=0.01)  # fmt: skip
    assert (service.gpus, service.gpu_share) == (0, 0.33)


def test_useful_work_of_a_fleet_without_anything_in_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = training_rows(1)[:6]
    late = tuple(replace(row, submit_s=half_of_run_s(), duration_s=3600.0) for row in jobs)
    monkeypatch.setattr(two_fleets, "training_rows", lambda seed: late)
    found = run_case(Case(30, 1))
    work_gpu_s = sum(3600 * row.members * row.gpus_per_member for row in late)
    assert found.busy == pytest.approx(work_gpu_s / (240 * half_of_run_s()), rel=0.02)
    assert found.jct_s == pytest.approx(3600 + 3 * fleets("save_s"), abs=15)
    assert (found.preemptions, found.unfinished) == (0, 0)


def test_serving_stops_training_where_it_needs_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    since_s = half_of_run_s() + 36_000.0
    row = replace(training_rows(1)[0], duration_s=5_400.0, members=1, gpus_per_member=8)
    jobs = tuple(
        replace(row, job_id=f"j{number}", submit_s=since_s + number) for number in range(30)
    )
    monkeypatch.setattr(two_fleets, "training_rows", lambda seed: jobs)
    found = run_case(Case(14, 1, PARTS[2], 0.44))
    assert found.preemptions > 0
    assert found.late < 0.01
