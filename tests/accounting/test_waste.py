"""Reasons and remedies of waste as a table, and its sums against a plain recount."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.accounting.waste import (
    HOUR_S,
    KINDS,
    GpusNow,
    JobFigures,
    ModelUse,
    SmallerDevice,
    summed,
    total,
    waste_of,
)
from gantree.model.host_use import HostUse
from support.examples import examples

H100 = "H100-80GB"
JOB = JobFigures(
    job="j", name="j", queue="q", user="u", running=True, gpus=8.0, used=(), has_checkpoint=False
)


def job(
    held: float = 80.0, useful: float = 0.0, idle: float = 0.0, lost: float = 0.0, **more: Any
) -> JobFigures:
    """A job with GPU-hours on an H100."""
    hours = (held, useful, idle, lost)
    use = ModelUse(H100, *(each * HOUR_S for each in hours))
    return replace(JOB, used=(use,), **more)


HALF = tuple(f"n0:{gpu}" for gpu in range(8))
CASES = [
    (job(useful=20, idle=60), "idle", "asks for 8 GPUs, keeps 2 busy on average", "Ask for 2 GPUs"),
    (
        job(useful=20, idle=60, now=GpusNow(HALF[:2], HALF[2:])),
        "idle",
        "asks for 8 GPUs, keeps 2 busy: idle are n0:2, n0:3, n0:4, n0:5, n0:6, n0:7",
        "Ask for 2 GPUs",
    ),
    (job(useful=60, idle=20, gpus=2.0), "idle", "asks for 2 GPUs, keeps 1 busy on average", "Ask for 1 GPU,"),
    (job(useful=32, idle=48, gpus=1.0), "idle", "idle 60% of its time", "ask for a part of a GPU"),
    (job(useful=64, idle=16), "idle", "idle 20% of its time", "overlap"),
    (job(idle=80), "idle", "computes nothing", "Cancel it"),
    (
        job(idle=80, gpus=1.0, now=GpusNow((), HALF[:1], 71.0, 80.0)),
        "idle",
        "fills memory (71 of 80 GiB), computes nothing",
        "Cancel it",
    ),
    (
        job(useful=60, lost=12),
        "redone",
        "work done again: 12 GPU-hours, no checkpoint declared",
        "Declare `checkpoint`",
    ),
    (
        job(useful=60, idle=2, lost=8, has_checkpoint=True, every_s=5400.0),
        "redone",
        "work done again: 8.0 GPU-hours, saved every 1.5 h",
        "Save more often",
    ),
    (job(lost=8, has_checkpoint=None), "redone", "work done again: 8.0 GPU-hours", "Save more"),
    (
        job(useful=50, idle=10, gpus=1.0, smaller=SmallerDevice("llama-3.2-1b", "1g.10gb of H100-80GB", 1 / 7)),
        "oversized",
        "llama-3.2-1b on 1 x H100-80GB: 1g.10gb of H100-80GB serves it at 14% of the cost",
        "gantree fit CLUSTER llama-3.2-1b --serve",
    ),
    (job(useful=80, smaller=SmallerDevice("m", "4 x L4-24GB", 0.6)), "", "", ""),
    (
        job(useful=80, cpus=64.0, host=HostUse(HOUR_S, 3.2 * HOUR_S, 100.0)),
        "cpus",
        "asks for 64 CPUs, uses 3.2 on average",
        "Ask for 4 CPUs",
    ),
    (
        job(useful=80, memory_GiB=512.0, host=HostUse(HOUR_S, 0.0, 40.0)),
        "memory",
        "asks for 512 GiB of memory, uses 40.0 at most",
        "Ask for 50 GiB",
    ),
    (job(useful=80, memory_GiB=512.0, host=HostUse(HOUR_S, 0.0, 300.0)), "", "", ""),
    (job(useful=80, cpus=64.0, host=HostUse(HOUR_S, 40 * HOUR_S, 1.0)), "", "", ""),
    (job(useful=80, cpus=64.0, host=HostUse(300.0, 3.0, 1.0)), "", "", ""),
    (job(useful=8, idle=92, gpus=2.0), "idle", "idle 92% of its time", "Let reading data overlap"),
    (job(useful=78, idle=2), "", "", ""),
    (job(held=0.2, idle=0.09), "", "", ""),
    (job(), "", "", ""),
]  # fmt: skip
"""(figures, kind, reason, part of the remedy)."""


@pytest.mark.parametrize(
    ("figures", "kind", "reason", "remedy"), CASES, ids=lambda each: str(each)[:40]
)
def test_each_job_has_one_reason_and_one_remedy(
    figures: JobFigures, kind: str, reason: str, remedy: str
) -> None:
    row = waste_of(figures)
    assert (row.kind, row.reason) == (kind, reason)
    assert remedy in row.remedy
    assert bool(row.reason) == bool(row.remedy)


def test_what_is_wasted_is_idle_and_done_again_or_what_a_smaller_device_saves() -> None:
    assert waste_of(job(useful=60, idle=10, lost=5)).wasted_gpu_s == pytest.approx(15 * HOUR_S)
    small = SmallerDevice("m", "1g.10gb", 0.25)
    assert waste_of(job(held=80, idle=10, smaller=small)).wasted_gpu_s == pytest.approx(60 * HOUR_S)
    unused = waste_of(job(useful=80, cpus=8.0, memory_GiB=64.0, host=HostUse(HOUR_S, HOUR_S, 24.0)))
    assert (unused.cpu_s, unused.memory_GiB) == (7 * HOUR_S, 40.0)


def test_a_sum_has_the_reason_of_the_worst_job_of_the_kind_that_wasted_most() -> None:
    jobs = [
        job(useful=60, idle=12, job="a"),
        job(useful=60, idle=8, job="b"),
        job(useful=60, lost=15, job="c"),
    ]
    whole = total([waste_of(each) for each in jobs])
    assert (whole.kind, whole.worst) == ("idle", "a")
    assert whole.reason == "2 jobs, most in a: idle 17% of its time"


hours = st.floats(0, 100, allow_nan=False).map(lambda each: each * HOUR_S)
used = st.builds(ModelUse, st.sampled_from((H100, "L4-24GB", "")), hours, hours, hours, hours)
drawn = st.builds(
    lambda number, queue, user, used: replace(
        JOB, job=f"j{number}", queue=queue, user=user, used=used
    ),
    st.integers(0, 99),
    st.sampled_from(("x", "y")),
    st.sampled_from(("ann", "bob", "eve")),
    st.lists(used, max_size=3, unique_by=lambda each: each.model).map(tuple),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(drawn, max_size=8))
def test_sums_by_user_and_queue_are_the_same_recount(jobs: list[JobFigures]) -> None:
    rows = [waste_of(job) for job in jobs]
    plain = sum(each.idle + each.lost for job in jobs for each in job.used)
    held = sum(each.held for job in jobs for each in job.used)
    for of in (
        list(summed(rows, lambda row: row.user)),
        list(summed(rows, lambda row: row.queue)),
        [total(rows)],
    ):
        assert sum(row.wasted_gpu_s for row in of) == pytest.approx(plain)
        assert sum(row.held_gpu_s for row in of) == pytest.approx(held)
        assert sum(row.jobs for row in of) == len(jobs)
    for row in rows:
        assert row.kind in ("", *KINDS)
    for row in summed(rows, lambda row: row.queue):
        assert (row.worst in {job.job for job in jobs}) == bool(row.kind)
