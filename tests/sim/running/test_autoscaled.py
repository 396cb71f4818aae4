"""Simulated services whose replicas an autoscaler decides on: they follow the load, late by the start of a replica."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.formats.traces import TraceJob
from gantree.policy.rules import Policy
from gantree.sim.results import Result
from gantree.sim.run import simulate
from gantree.sim.running.model import RunningModel, Service, ServiceScaling
from gantree.testing.builders import cluster

HOUR_S = 3600.0
SITE = cluster(leaves=1, nodes=8, gpus=4)
DAILY = Service("chat", 1, 2, 12, ((4 * HOUR_S, 0.0), (16 * HOUR_S, 1.0)), scaling=ServiceScaling())


def lived(service: Service, hours: float = 24.0, gpus: int = 1, seed: int = 1) -> Result:
    """A day beside one job that lasts as long and never yields."""
    rows = [TraceJob("train", 0, hours * HOUR_S, gpus, 1, preemptible=False)]
    return simulate(SITE, rows, Policy(), running=RunningModel(services=(service,)), seed=seed)


def scaled(**changes: Any) -> Service:
    return replace(DAILY, scaling=replace(ServiceScaling(), **changes))


def test_replicas_follow_the_load_at_the_target() -> None:
    result = lived(DAILY)
    served = result.summary()["services"]["chat"]
    full_h = result.served["chat"].full_s / HOUR_S
    assert full_h == pytest.approx(24 * 7, rel=0.02)
    assert full_h / 0.8 < served["served_gpu_hours"] < 1.2 * full_h / 0.8
    assert served["late_requests"] < 0.01 * served["requests"]
    assert 20 < served["steps"] < 100
    assert all(row.outcome == "succeeded" for row in result.replicas)


def test_without_scaling_the_summary_is_as_it_was() -> None:
    served = lived(replace(DAILY, scaling=None)).summary()["services"]["chat"]
    assert sorted(served) == ["served_gpu_hours", "wanted_gpu_hours"]


def test_the_later_a_replica_is_ready_the_more_requests_are_late_and_spare_ones_help() -> None:
    fast, slow, spared = (
        lived(scaled(target=0.95, **changes)).served["chat"].late_share
        for changes in ({}, {"start_s": 900.0}, {"start_s": 900.0, "spare": 2})
    )
    assert fast < slow
    assert spared < slow / 2


def test_a_service_that_finds_no_room_sheds_what_waits_too_long() -> None:
    result = lived(DAILY, gpus=24)
    served = result.summary()["services"]["chat"]
    assert served["shed_requests"] > 0
    assert served["late_requests"] > 0.2 * served["requests"]
    assert max(row.end_s or 0 for row in result.replicas) <= 24 * HOUR_S + 1


def test_a_service_that_sleeps_at_night_has_no_replica_then() -> None:
    result = lived(replace(DAILY, trough=0, peak=4, curve=((8 * HOUR_S, 0.0), (16 * HOUR_S, 1.0))))
    nights = [row for row in result.replicas if row.submit_s < 7.5 * HOUR_S]
    assert nights, "load falls until eight"


def test_equal_seeds_give_equal_runs_and_other_seeds_other_requests() -> None:
    first, again, other = (lived(DAILY, 6.0, seed=seed).summary()["services"] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_replica_that_is_stopped_for_a_more_urgent_job_is_not_ready_until_it_runs_again() -> None:
    """For half an hour and its start; the training, which began again, ends after five and a half."""
    rows = [
        TraceJob("train", 0, 4 * HOUR_S, 1, 1),
        TraceJob("urgent", HOUR_S, 1800, 8, 4, priority=1000),
    ]
    steady = replace(DAILY, curve=((0.0, 0.5),))
    result = simulate(SITE, rows, Policy(), running=RunningModel(services=(steady,)), seed=1)
    figures = result.served["chat"]
    assert figures.late_share == pytest.approx(1860 / (5.5 * HOUR_S), rel=0.05)
    assert figures.shed > 0
