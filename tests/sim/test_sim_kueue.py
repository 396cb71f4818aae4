"""Kueue's shapes: what is generated, and that the bounds are bounds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.policy.rules import Policy
from gantree.sim.kueue.bound import admission_bounds_s, makespan_bound_s, weighted_admission_bound_s
from gantree.sim.kueue.figures import lines, of_run
from gantree.sim.kueue.shapes import BASELINE, SHAPES, TAS, Kueue, Shape, WorkClass
from gantree.sim.kueue.work import cluster_of, jobs_of, policy_of, trace_of
from gantree.sim.run import simulate

KUEUE = Kueue(1.0)


@pytest.mark.parametrize(
    ("name", "workloads", "queues", "nodes"),
    [
        ("tas", 15_000, 35, 640),
        ("baseline", 15_000, 35, 1),
        ("large-scale", 50_000, 1010, 1),
    ],
)
def test_a_shape_has_the_published_size(name: str, workloads: int, queues: int, nodes: int) -> None:
    shape = SHAPES[name]
    assert shape.workloads == workloads
    assert len(policy_of(shape, Policy()).queues) == queues
    assert len(cluster_of(shape).nodes) == nodes


def test_a_queue_may_use_its_own_quota_and_borrow_no_more_than_its_cohort_has() -> None:
    cohort, queue = policy_of(BASELINE, Policy()).queues[:2]
    assert (cohort.guarantee, cohort.limit) == ({"cpus": 120}, {"cpus": 120})
    assert (queue.path, queue.guarantee, queue.borrow) == (
        "cohort-0/cq-0", {"cpus": 20}, {"cpus": 100}
    )  # fmt: skip


def test_workloads_come_in_the_order_of_time_and_wish_what_the_test_says() -> None:
    small = replace(TAS, cohorts=1, queues_of_cohort=1)
    rows, job = trace_of(small), jobs_of(small)
    assert [row.submit_s for row in rows] == sorted(row.submit_s for row in rows)
    wishes = [job(row).topology for row in rows if row.job_id.startswith("medium")]
    required = sum(wish.required == "rack" for wish in wishes)
    preferred = sum(wish.preferred == "rack" for wish in wishes)
    sliced = sum(bool(wish.slices) and wish.slices[0].members == 2 for wish in wishes)
    assert (required, preferred, sliced) == (34, 33, 33)


def test_bounds_of_one_workload_after_the_other_are_what_they_take() -> None:
    # six a cohort arrive each second; four fit beside each other and run 2 s
    kind = WorkClass("c", 2, 1, 30.0, 2.0, 1.0, 50)
    shape = Shape("one", 1, 6, (kind,), KUEUE)
    assert makespan_bound_s(shape) == 1 + 2 * 6 * 30 * 2 / 120
    # starts: 4 at 1, 4 at 3, 4 at 5 for arrivals 6 at 1 and 6 at 2
    assert admission_bounds_s(shape) == {"c": (4 * 0 + 2 * 2 + 2 * 1 + 4 * 3) / 12}


work_class = st.builds(
    WorkClass,
    name=st.just("c"),
    count=st.integers(1, 4),
    pods=st.integers(1, 3),
    cpus=st.sampled_from([0.5, 5.0, 20.0]),
    run_s=st.sampled_from([0.5, 1.0, 3.0]),
    every_s=st.sampled_from([0.1, 0.5, 2.0]),
    priority=st.just(50),
)


@given(st.lists(work_class, min_size=1, max_size=3))
def test_first_come_first_served_is_never_sooner_than_the_bounds(
    classes: list[WorkClass],
) -> None:
    named = tuple(replace(kind, name=f"c{number}") for number, kind in enumerate(classes))
    shape = Shape("any", 1, 6, named, KUEUE)
    arrivals = [
        ((number + 1) * kind.every_s, kind)
        for kind in named
        for number in range(kind.count)
        for _ in range(6)
    ]
    waits_s: dict[str, list[float]] = {kind.name: [] for kind in named}
    running: list[tuple[float, float]] = []  # (end, CPUs)
    weighted = sum_cpu_s = now = 0.0
    for arrival_s, kind in sorted(arrivals, key=lambda arrival: arrival[0]):
        now = max(now, arrival_s)
        while sum(cpus for end_s, cpus in running if end_s > now) + kind.all_cpus > 120:
            now = min(end_s for end_s, _ in running if end_s > now)
        running.append((now + kind.run_s, kind.all_cpus))
        waits_s[kind.name].append(now - arrival_s)
        weighted += kind.run_s * kind.all_cpus * (now - arrival_s)
        sum_cpu_s += kind.run_s * kind.all_cpus
    assert max(end_s for end_s, _ in running) >= makespan_bound_s(shape) - 1e-6
    assert weighted / sum_cpu_s >= weighted_admission_bound_s(shape) - 1e-6
    for name, bound_s in admission_bounds_s(shape).items():
        assert sum(waits_s[name]) / len(waits_s[name]) >= bound_s - 1e-6


def test_a_small_shape_runs_to_its_end_no_sooner_than_the_bounds() -> None:
    classes = (
        WorkClass("small", 6, 1, 1, 0.2, 0.1, 50),
        WorkClass("large", 2, 1, 20, 1.0, 0.3, 200),
    )
    shape = Shape("few", 2, 6, classes, KUEUE)
    result = simulate(
        cluster_of(shape), trace_of(shape), policy_of(shape, Policy()), jobs=jobs_of(shape)
    )
    figures = of_run(shape, result, {"seconds": 1.0})
    assert figures["finished"] == figures["workloads"] == 96
    assert figures["makespan_s"] >= figures["makespan_bound_s"]
    assert figures["weighted_admission_s"] >= figures["weighted_admission_bound_s"]
    assert [line[1] for line in lines(figures)][:3] == [
        "makespan", "admission, small", "admission, large"
    ]  # fmt: skip
