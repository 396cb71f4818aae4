"""Progress by step time: a gang works as much slower as its step is longer than at its ideal placement."""

from dataclasses import replace

import pytest

from gantree.formats.traces import TraceJob
from gantree.model.jobs import AxisTraffic, Elastic, Job, Traffic
from gantree.policy.rules import Policy
from gantree.sim.run import simulate
from gantree.sim.running.model import RunningModel
from gantree.sim.running.step_speed import StepSpeed
from gantree.sim.workload import job_of
from gantree.testing.builders import cluster

SITE = cluster(leaves=2, nodes=2, gpus=8)
TRAFFIC = Traffic(axes=(AxisTraffic("data", 4e9),), compute_s=0.01)
STEP_TIME = RunningModel(step_time=True)


def trace_job(name: str, submit_s: float, duration_s: float, members: int, gpus: int) -> TraceJob:
    return TraceJob(name, submit_s, duration_s, members, gpus)


def with_traffic(row: TraceJob) -> Job:
    return replace(job_of(row), traffic=TRAFFIC)


def test_a_gang_at_its_ideal_placement_runs_for_its_duration() -> None:
    result = simulate(
        SITE, [trace_job("a", 0, 100, 2, 4)], Policy(), running=STEP_TIME, jobs=with_traffic
    )
    assert result.jobs[0].end_s == 100
    assert result.jobs[0].stretch == 1


def test_a_gang_over_two_nodes_that_would_fit_one_is_stretched_by_its_step() -> None:
    """Blockers of 5 GPUs leave 3 on each node: the pair of members cannot be on one."""
    rows = [trace_job(f"b{n}", 0, 1e5, 1, 5) for n in range(4)]
    rows += [trace_job("gang", 1, 100, 2, 2)]
    speeds = StepSpeed(SITE)
    job = with_traffic(rows[-1])
    result = simulate(SITE, rows, Policy(), running=STEP_TIME, jobs=with_traffic)
    gang = result.jobs[-1]
    assert gang.placement is not None
    assert len(gang.placement.nodes) == 2
    step_s, ideal_s = gang.placement.predicted.step_s, speeds.ideal_step_s(job)
    assert step_s is not None
    assert ideal_s is not None
    assert step_s > 1.5 * ideal_s
    assert gang.end_s == pytest.approx(1 + 100 * step_s / ideal_s)
    assert gang.stretch == pytest.approx(step_s / ideal_s)
    assert gang.useful_gpu_s == 400
    assert result.summary()["running"] == {"step_time": True, "seed": 0}


def test_without_the_model_it_is_not() -> None:
    rows = [trace_job(f"b{n}", 0, 1e5, 1, 5) for n in range(4)] + [trace_job("gang", 1, 100, 2, 2)]
    result = simulate(SITE, rows, Policy(), jobs=with_traffic)
    assert result.jobs[-1].end_s == 101
    assert "running" not in result.summary()


def test_what_a_job_asks_of_the_topology_does_not_change_its_ideal() -> None:
    speeds, row = StepSpeed(SITE), trace_job("a", 0, 1, 4, 8)
    job = with_traffic(row)
    bound = replace(with_traffic(replace(row, required="leaf", members=2)), roles=job.roles)
    assert speeds.ideal_step_s(job) == speeds.ideal_step_s(bound) is not None


def test_a_job_without_traffic_works_in_proportion_to_its_members() -> None:
    job = job_of(trace_job("a", 0, 1, 4, 8))
    assert StepSpeed(SITE).speed(job, 2, None) == 0.5


def test_of_a_size_that_its_parallelism_does_not_divide_a_gang_works_in_proportion() -> None:
    """8 data ways of 4 members become 6 of 3 members, whose pipeline of 4 has no place: no step is predicted."""
    job = replace(
        with_traffic(trace_job("a", 0, 1, 4, 2)),
        parallelism=(("data", 2), ("pipeline", 4)),
        elastic=Elastic(1, 4),
    )
    assert StepSpeed(SITE).speed(job, 3, None) == 0.75
