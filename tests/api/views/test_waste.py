"""Waste as a caller is told of it: figures of the ledger and of the history, counters, visibility."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.accounting.ended_jobs import EndedJob
from gantree.accounting.waste import waste_of
from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.views.accounting.waste_view import By, answer, figures, of_ended
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import grant_of
from gantree.model.events import GpuUseObserved
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.host_use import HostUse
from gantree.model.jobs import Role, Shape
from gantree.telemetry.gpu_use import GpuUse
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.hardware.prices import PriceList, Quote

HOUR_S = 3600.0
BOSS = Caller("op", EVERYTHING, "tcp")


@pytest.fixture
def stage() -> Stage:
    """ann's `a` computes for two hours on 8 GPUs, a quarter of the time; bob's `b` serves a 1B model on as many."""
    stage = Stage(cluster(leaves=1, nodes=2))
    serve = ("vllm", "serve", "meta-llama/Llama-3.2-1B-Instruct", "--max-num-seqs", "4")
    for name, user, queue, run in (("a", "ann", "x", ("train",)), ("b", "bob", "x/y", serve)):
        made = job(name, gpus=8)
        roles = tuple(replace(role, run=run) for role in made.roles)
        stage.submit(replace(made, user=user, queue=queue, roles=roles))
        stage.started(name)
    used = []
    for _ in range(8):
        stage.now += HOUR_S / 4
        used = [
            MeasuredUse("a", 1, 0.5 * HOUR_S, 1.5 * HOUR_S),
            MeasuredUse("b", 1, 2 * HOUR_S, 0.0),
        ]
        stage.tell(GpuUseObserved, since=stage.now - HOUR_S / 4, until=stage.now, gangs=tuple(used))
    return stage


@pytest.fixture
def view(stage: Stage, tmp_path: Path) -> Iterator[ReadView]:
    journal = SqliteJournal(tmp_path)
    yield ReadView(
        stage.scheduler.ledger, journal, ReadPoint(1, stage.now), lambda policy: stage.scheduler
    )
    journal.close()


def test_jobs_come_dearest_first_with_reason_and_remedy(view: ReadView) -> None:
    told = answer(figures(view, BOSS, 0.0), {}, {}, "job", 100)
    b, a = told["rows"]
    assert a["reason"] == "asks for 8 GPUs, keeps 2 busy on average"
    assert a["wasted_gpu_hours"] == pytest.approx(12.0)
    assert a["USD"] == pytest.approx(12 * 6.88)
    assert b["reason"].startswith("llama-3.2-1b on 8 x H100-80GB: ")
    assert "gantree fit CLUSTER llama-3.2-1b --serve" in b["remedy"]
    assert told["sum"]["wasted_gpu_hours"] == a["wasted_gpu_hours"] + b["wasted_gpu_hours"]
    few = answer(figures(view, BOSS, 0.0), {}, {}, "job", 1)
    assert (len(few["rows"]), few["left_out"], few["sum"]) == (1, 1, told["sum"])


def test_counters_of_a_job_that_runs_name_the_gpus_that_are_idle(view: ReadView) -> None:
    found = figures(view, BOSS, 0.0)
    (node,) = {node for node, _ in found.gpus_of_job["a"]}
    use = {node: {gpu: GpuUse(busy=0.9 if gpu < 2 else 0.0) for gpu in range(8)}}
    rows = answer(found, use, {"a": HostUse(HOUR_S, 1.0, 1.0)}, "job", 100)["rows"]
    (a,) = (row for row in rows if row["name"] == "a")
    idle = ", ".join(f"{node}:{gpu}" for gpu in range(2, 8))
    assert a["reason"] == f"asks for 8 GPUs, keeps 2 busy: idle are {idle}"


@pytest.mark.parametrize(
    ("who", "grants", "seen"),
    [
        ("ann", (grant_of("user"),), {"a"}),
        ("eve", (grant_of("user"),), set()),
        ("eve", (grant_of("viewer", "x"),), {"a", "b"}),
        ("eve", (grant_of("queue_admin", "x/y"),), {"b"}),
    ],
)
def test_each_is_told_of_the_jobs_that_he_may_see(
    view: ReadView, who: str, grants: Any, seen: set[str]
) -> None:
    columns: tuple[tuple[By, str], ...] = (("job", "name"), ("user", "worst"), ("queue", "worst"))
    for by, name in columns:
        told = answer(figures(view, Caller(who, grants, "tcp"), 0.0), {}, {}, by, 100)
        assert {row[name] for row in told["rows"]} == seen
        assert told["sum"]["jobs"] == len(seen)


def test_the_hosts_of_jobs_with_many_cores_or_much_memory_are_looked_at(
    stage: Stage, view: ReadView
) -> None:
    for name, shape in (
        ("small", Shape(cpus=1)),
        ("cores", Shape(cpus=4)),
        ("memory", Shape(cpus=1, memory_GiB=16)),
    ):
        stage.submit(replace(job(name), roles=(Role("w", 1, shape, run=("true",)),)))
    assert figures(view, BOSS, 0.0).attempt_of_job == {"cores": 1, "memory": 1}


def test_of_a_gpu_that_is_shared_with_a_job_unseen_nothing_is_said(tmp_path: Path) -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    part = Role("w", 1, Shape(gpu_share=0.25, gpu_memory_GiB=8.0), run=("true",))
    for name in ("ann", "bob"):
        stage.submit(replace(job(name), user=name, queue="x", roles=(part,)))
    journal = SqliteJournal(tmp_path)
    view = ReadView(
        stage.scheduler.ledger, journal, ReadPoint(1, stage.now), lambda policy: stage.scheduler
    )
    boss, ann = (
        figures(view, caller, 0.0).gpus_of_job
        for caller in (BOSS, Caller("ann", (grant_of("user"),), "tcp"))
    )
    journal.close()
    assert [len(gpus) for gpus in boss.values()] == [1, 1]
    assert len(set(boss.values())) == 1, "both are on one GPU"
    assert list(ann.values()) == [()]


def test_jobs_that_only_the_history_knows_count_with_what_they_lost_and_left_idle() -> None:
    ended = EndedJob(
        job="old", name="old", queue="x", user="ann", priority=1, outcome="failed", reason="", exit_code=1,
        last_failure="", submitted_at=0.0, started_at=1.0, ended_at=2.0, attempts=3, failures=3, preemptions=0,
        members=1, processes=1, gpus=8, gpu_model="H100-80GB", nodes="n0", held_gpu_s=40 * HOUR_S,
        lost_gpu_s=12 * HOUR_S, waited_s=0.0,
    )  # fmt: skip
    assert waste_of(of_ended(ended)).reason == "work done again: 12 GPU-hours"
    idle = replace(ended, useful_gpu_s=5 * HOUR_S, idle_gpu_s=15 * HOUR_S)
    assert waste_of(of_ended(idle)).reason == "asks for 8 GPUs, keeps 2 busy on average"
    assert waste_of(of_ended(idle)).wasted_gpu_s == pytest.approx(27 * HOUR_S)


def test_waste_costs_what_the_site_pays(view: ReadView) -> None:
    held = figures(view, BOSS, 0.0)
    listed = answer(held, {}, {}, "job", 100)["sum"]
    own = PriceList([Quote("H100-80GB", "on_demand", 1.0, "2026-01-01", "contract")])
    told = answer(held, {}, {}, "job", 100, own)["sum"]
    assert told["USD"] == pytest.approx(told["wasted_gpu_hours"])
    assert listed["USD"] > told["USD"]
