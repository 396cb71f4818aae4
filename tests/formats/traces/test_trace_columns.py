"""Columns of a trace for parts of GPUs, market, model, parallelism and spread, and the jobs that come of them."""

import pytest

from gantree.formats.traces import TraceJob, read_trace_text
from gantree.model.errors import BadFields
from gantree.model.jobs import Shape, Spread, TopologySpec
from gantree.sim.workload import gpus_of, job_of

HEADER = "job_id,submit_s,duration_s,members,gpus_per_member"


def one(columns: str, cells: str, gpus: int = 0) -> TraceJob:
    (job,) = read_trace_text([f"{HEADER},{columns}\n", f"a,0,1,2,{gpus},{cells}\n"], "t.csv")
    return job


def shape(job: TraceJob) -> Shape:
    return job_of(job).roles[0].shape


def test_a_member_may_ask_for_a_mig_instance() -> None:
    job = one("mig,gpu", "3g.40gb,H100-80GB")
    assert shape(job) == Shape(mig="3g.40gb", models=("H100-80GB",))
    assert gpus_of(job) == pytest.approx(2 * 3 / 7)


def test_a_member_may_ask_for_a_share_of_a_gpu() -> None:
    job = one("gpu_share,gpu_memory_GiB", "0.25,20")
    assert shape(job) == Shape(gpu_share=0.25, gpu_memory_GiB=20.0)
    assert gpus_of(job) == 0.5


def test_whole_gpus_are_counted_whole() -> None:
    assert gpus_of(one("gpu", "", 4)) == 8


def test_a_member_may_need_memory_and_nics_and_one_of_several_models() -> None:
    job = one("memory_GiB_per_member,nics_per_member,gpu", "64,2,H200-141GB|H100-80GB", 8)
    assert shape(job) == Shape(gpus=8, memory_GiB=64.0, nics=2, models=("H200-141GB", "H100-80GB"))


@pytest.mark.parametrize("market", ["on-demand", "spot", "any"])
def test_a_job_may_name_its_market(market: str) -> None:
    assert shape(one("market", market, 8)).labels == (("gantree.market", market),)


def test_a_job_that_names_no_market_asks_for_no_label() -> None:
    assert shape(one("market", "", 8)).labels == ()


def test_the_axes_of_a_parallelism_keep_their_order() -> None:
    job = one("parallelism,model", "tensor=8  pipeline=2 data=4,llama-70b", 8)
    assert job.parallelism == (("tensor", 8), ("pipeline", 2), ("data", 4))
    assert job_of(job).parallelism == job.parallelism
    assert job.model == "llama-70b"


def test_members_may_be_spread() -> None:
    assert job_of(one("spread,spread_at_most", "rack,1", 8)).topology == TopologySpec(
        spread=Spread("rack", 1)
    )
    assert job_of(one("spread", "rack", 8)).topology == TopologySpec(spread=Spread("rack"))


@pytest.mark.parametrize(
    ("columns", "cells", "gpus", "column", "words"),
    [
        ("mig", "half", 0, "mig", "such as 3g.40gb"),
        ("mig", "3g.40gb", 1, "mig", "gpus_per_member 0"),
        ("gpu_share", "1.5", 0, "gpu_share", "at most 1"),
        ("gpu_share", "0", 0, "gpu_share", "above 0"),
        ("gpu_share", "0.5", 1, "gpu_share", "gpus_per_member 0"),
        ("gpu_share,mig", "0.5,3g.40gb", 0, "gpu_share", "where there is a mig"),
        ("gpu_memory_GiB", "20", 0, "gpu_memory_GiB", "without gpu_share"),
        ("busy", "1.5", 8, "busy", "a number from 0 to 1"),
        ("market", "sport", 8, "market", "on-demand, spot or any"),
        ("model", "a b", 8, "model", "a name"),
        ("parallelism", "tensor:8", 8, "parallelism", "AXIS=WAYS"),
        ("parallelism", "tensor=8 tensor=2", 8, "parallelism", "each once"),
        ("parallelism", "tensors=8", 8, "parallelism", "tensor, context"),
        ("parallelism", "data=4 expert=3", 8, "parallelism", "a divisor of data, which is 4"),
        ("nics_per_member", "-1", 8, "nics_per_member", "0 or more"),
        ("memory_GiB_per_member", "x", 8, "memory_GiB_per_member", "0 or more"),
        ("spread_at_most", "1", 8, "spread", "a tier"),
    ],
)
def test_what_a_job_cannot_ask_for_is_named(
    columns: str, cells: str, gpus: int, column: str, words: str
) -> None:
    with pytest.raises(BadFields) as caught:
        one(columns, cells, gpus)
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (2, column)
    assert words in str(problem)
