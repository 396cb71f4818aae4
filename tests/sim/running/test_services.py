"""Services: replicas follow the curve, are served where there is room, and end with the trace."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob
from gantree.policy.rules import Policy
from gantree.sim.run import simulate
from gantree.sim.running.model import DAY_S, Checkpoints, RunningModel, Service
from gantree.sim.running.services import replicas, wanted
from gantree.testing.builders import cluster
from support.examples import examples

HOUR_S = 3600.0
SITE = cluster(leaves=1, nodes=4, gpus=4)


def service(trough: int, peak: int, *curve: tuple[float, float]) -> Service:
    return Service("chat", 4, trough, peak, curve)


DAILY = service(1, 3, (4 * HOUR_S, 0.0), (16 * HOUR_S, 1.0))


@st.composite
def services(draw: st.DrawFn) -> Service:
    seconds = sorted(draw(st.sets(st.integers(0, 86_400), min_size=1, max_size=5)))
    trough = draw(st.integers(0, 3))
    shares = [draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])) for _ in seconds]
    curve = tuple(zip(map(float, seconds), shares, strict=True))
    return Service("s", 1, trough, trough + draw(st.integers(0, 4)), curve)


@settings(max_examples=examples(50), deadline=None)
@given(services(), st.integers(0, 100_000).map(float))
def test_as_many_replicas_are_there_as_are_wanted(each: Service, from_s: float) -> None:
    """Over three days, at moments between the changes."""
    there = []
    for replica in replicas((each,), from_s):
        if replica.row.submit_s > from_s + 3 * DAY_S:
            break
        there.append(replica)
        if len(there) == each.trough and each.trough == each.peak:
            break
    for hour in range(1, 71):
        at_s = from_s + hour * HOUR_S + 0.37
        count = sum(r.row.submit_s <= at_s < r.until_s for r in there)
        assert abs(count - wanted(each, at_s)) == 0 or near_a_change(each, at_s)


def near_a_change(each: Service, at_s: float) -> bool:
    """Steps and rounding put a change a second to one side."""
    return wanted(each, at_s - 1) != wanted(each, at_s + 1)


def test_replicas_come_and_go_with_the_curve_until_the_trace_is_over() -> None:
    rows = [TraceJob("train", 0, 20 * HOUR_S, 1, 4)]
    result = simulate(SITE, rows, Policy(), running=RunningModel(services=(DAILY,)))
    assert result.jobs[0].end_s == 20 * HOUR_S
    spans = [(row.job_id, row.first_start_s, row.end_s, row.outcome) for row in result.replicas]
    assert sorted(spans, key=lambda each: (each[1] or 0, each[0])) == [
        ("chat.1.1", 0.0, 20 * HOUR_S, "succeeded"),
        ("chat.2.1", 0.0, pytest.approx(1 * HOUR_S), "succeeded"),
        ("chat.2.2", pytest.approx(7 * HOUR_S), 20 * HOUR_S, "succeeded"),
        ("chat.3.1", pytest.approx(13 * HOUR_S), pytest.approx(19 * HOUR_S), "succeeded"),
    ]
    summary = result.summary()
    assert summary["jobs"] == summary["finished"] == 1
    assert summary["services"]["chat"] == {
        "wanted_gpu_hours": pytest.approx(4 * (20 + 1 + 13 + 6)),
        "served_gpu_hours": pytest.approx(4 * (20 + 1 + 13 + 6)),
    }


def test_a_replica_that_finds_no_room_is_withdrawn_when_it_is_not_wanted_any_more() -> None:
    rows = [TraceJob("train", 0, 30 * HOUR_S, 3, 4, preemptible=True, priority=1000)]
    result = simulate(SITE, rows, Policy(), running=RunningModel(services=(DAILY,)))
    outcomes = {row.job_id: row.outcome for row in result.replicas}
    assert outcomes["chat.3.1"] == "cancelled"
    served = result.summary()["services"]["chat"]
    assert served["served_gpu_hours"] < served["wanted_gpu_hours"]


def test_services_do_not_keep_a_run_going_in_which_nothing_else_can_start() -> None:
    rows = [TraceJob("never", 0, 10, 5, 4)]
    result = simulate(SITE, rows, Policy(), running=RunningModel(services=(DAILY,)))
    assert result.jobs[0].outcome == "pending"
    assert all(row.end_s is not None and row.end_s <= 4 * DAY_S for row in result.replicas)


def test_a_replica_that_was_stopped_serves_on_without_a_restore() -> None:
    """At 3600 a gang of higher priority takes the nodes of both replicas for a minute."""
    rows = [
        TraceJob("train", 0, 2 * HOUR_S, 1, 4, preemptible=False, priority=2000),
        TraceJob("urgent", HOUR_S, 60, 3, 4, priority=1000),
    ]
    steady = service(2, 2, (0.0, 0.0))
    model = RunningModel(services=(steady,), checkpoints=Checkpoints(600, restore_s=300))
    result = simulate(SITE, rows, Policy(), running=model)
    urgent_s = result.jobs[1].first_start_s
    assert urgent_s is not None
    stopped = [row for row in result.replicas if row.attempts == 2]
    assert stopped
    for row in stopped:
        assert row.end_s == 2 * HOUR_S
        assert row.useful_gpu_s == pytest.approx(4 * (2 * HOUR_S - 60))
