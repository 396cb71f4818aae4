"""Random traces: at every moment every invariant of the ledger holds, at the end no job and no work is lost."""

from heapq import heapify, heappop, heappush
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.invariants import check
from gantree.formats.traces import TraceJob
from gantree.model.phases import Phase
from gantree.policy.rules import Policy, Preemption
from gantree.sim.cluster import Overheads
from gantree.sim.run import Simulation, simulate
from gantree.sim.work import Doing
from gantree.testing.builders import cluster
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, gpus=4)
NODES = 4
TIMES = st.integers(0, 60).map(float)
POLICIES = st.sampled_from(
    [
        Policy(),
        Policy(preemption=Preemption(by="none")),
        Policy(min_run_s=20),
        Policy(evictions_per_day=1),
    ]
)
SHORT = st.sampled_from([0.0, 1.0, 2.5, 30.0])


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """Up to 12 jobs, some of them too large for the cluster, in no order of time."""
    return [
        TraceJob(
            job_id=str(number),
            submit_s=draw(TIMES),
            duration_s=draw(TIMES),
            members=draw(st.integers(1, NODES + 1)),
            gpus_per_member=draw(st.sampled_from([0, 1, 2, 3, 4, 5])),
            queue="q",
            priority=draw(st.sampled_from(["research", "batch", "serving"])),
            checkpoint_s=draw(st.sampled_from([None, 0.0, 5.0, 20.0])),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


def fits_when_empty(row: TraceJob) -> bool:
    """Whether the empty site holds the gang: 4 nodes of 4 GPUs."""
    per_node = 4 // row.gpus_per_member if row.gpus_per_member else row.members
    return row.members <= NODES * per_node


@settings(max_examples=examples(50), deadline=None)
@given(traces(), POLICIES, SHORT, SHORT, st.sampled_from([0.0, 3.0, 100.0]))
def test_no_job_and_no_work_is_lost(
    trace: list[TraceJob], policy: Policy, start_s: float, stop_s: float, save_s: float
) -> None:
    simulation = Simulation(SITE, trace, policy, Overheads(start_s, stop_s, save_s))
    while simulation.step():
        check(simulation.scheduler.ledger)
        inventory_agrees(simulation)
    result = simulation.result()
    assert [row.job_id for row in result.jobs] == [row.job_id for row in trace]
    for row, job in zip(trace, result.jobs, strict=True):
        assert job.outcome == (Phase.SUCCEEDED if fits_when_empty(row) else Phase.PENDING)
        assert bool(job.reason) == (not job.finished)
        if job.finished:
            assert job.wait_s is not None and job.wait_s >= start_s
            assert job.jct_s is not None and job.jct_s >= start_s + row.duration_s
            assert job.attempts == job.preemptions + 1
    owed = [
        (start_s + row.duration_s) * job.gpus + job.gpu_s_lost
        for row, job in zip(trace, result.jobs, strict=True)
        if job.finished
    ]
    assert result.held_gpu_s == pytest.approx(fsum(owed))


def inventory_agrees(simulation: Simulation) -> None:
    """What the cluster runs is exactly what the ledger says holds a place."""
    running = {
        key for key, doing in simulation.cluster.inventory().items() if doing is not Doing.ENDED
    }
    holding = simulation.scheduler.ledger.holding.values()
    assert running == {(state.job, state.attempt) for state in holding}


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 3), st.lists(st.tuples(TIMES, TIMES), max_size=15))
def test_jobs_of_one_gpu_are_served_like_a_line_at_several_counters(
    gpus: int, times: list[tuple[float, float]]
) -> None:
    """The twin: first come, first served, at whichever counter is free first."""
    trace = [
        TraceJob(
            job_id=str(n), submit_s=at, duration_s=length, members=1, gpus_per_member=1, queue="q"
        )
        for n, (at, length) in enumerate(times)
    ]
    result = simulate(cluster(leaves=1, nodes=1, gpus=gpus), trace, Policy())
    free_at = [0.0] * gpus
    heapify(free_at)
    expected = {}
    for row in sorted(trace, key=lambda row: row.submit_s):
        start_s = max(row.submit_s, heappop(free_at))
        heappush(free_at, start_s + row.duration_s)
        expected[row.job_id] = (start_s, start_s + row.duration_s)
    assert {job.job_id: (job.first_start_s, job.end_s) for job in result.jobs} == expected
