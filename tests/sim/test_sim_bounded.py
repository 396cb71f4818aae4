"""Bounded runs: the same rows and decisions, though jobs that are over are forgotten."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.invariants import check
from gantree.formats.traces import TraceJob
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy
from gantree.sim import run as loop
from gantree.sim.cluster import Overheads
from gantree.sim.files import jobs_csv
from gantree.sim.run import Simulation, simulate
from gantree.sim.running.model import FailureRate, Failures, RunningModel, Service
from gantree.testing.builders import cluster
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, gpus=4)
CHAT = Service("chat", 1, 1, 3, ((0.0, 0.0), (40.0, 1.0)))


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    rows = [
        TraceJob(
            job_id=str(number),
            submit_s=draw(st.integers(0, 60).map(float)),
            duration_s=draw(st.integers(0, 60).map(float)),
            members=draw(st.integers(1, 3)),
            gpus_per_member=draw(st.sampled_from([1, 2, 4])),
            priority=draw(st.sampled_from(["research", "batch", "serving"])),
            checkpoint_s=draw(st.sampled_from([None, 5.0])),
        )
        for number in range(draw(st.integers(0, 15)))
    ]
    return sorted(rows, key=lambda row: row.submit_s)


MODELS = st.sampled_from(
    [
        RunningModel(),
        RunningModel(failures=Failures(node=FailureRate(300, 20)), services=(CHAT,)),
    ]
)


@settings(max_examples=examples(25), deadline=None)
@given(traces(), MODELS)
def test_a_bounded_run_has_the_same_results(trace: list[TraceJob], model: RunningModel) -> None:
    whole = simulate(SITE, trace, Policy(), running=model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "FORGOTTEN_AT_ONCE", 2)
        one = Simulation(SITE, iter(trace), Policy(), Overheads(), running=model, bounded=True)
        while one.step():
            check(one.scheduler.ledger)
        bounded = one.result()
    assert list(bounded.jobs) == list(whole.jobs)
    assert bounded.summary() == whole.summary()
    assert (
        jobs_csv(bounded).splitlines()[: len(trace) + 1]
        == jobs_csv(whole).splitlines()[: len(trace) + 1]
    )


def test_it_knows_only_the_jobs_that_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "FORGOTTEN_AT_ONCE", 10)
    rows = (TraceJob(str(n), 10.0 * n, 5, 1, 4) for n in range(500))
    one = Simulation(SITE, rows, Policy(), Overheads(), bounded=True)
    most = 0
    while one.step():
        known = (
            len(one.scheduler.ledger.jobs),
            len(one.cluster.work_of_job),
            len(one.load.open_rows),
        )
        most = max(most, *known, len(one.record.newest_placement), len(one.record.spans))
    assert most <= 15
    assert [row.end_s for row in one.result().jobs] == [10.0 * n + 5 for n in range(500)]


def test_rows_must_come_in_the_order_of_submission() -> None:
    def rows() -> Iterator[TraceJob]:
        yield TraceJob("a", 10, 5, 1, 4)
        yield TraceJob("b", 9, 5, 1, 4)

    with pytest.raises(BadInput, match="job b is submitted at 9 s, after one of 10 s"):
        simulate(SITE, rows(), Policy(), bounded=True)
