"""What ranks send: groups of a parallelism, and bytes from a model, against figures worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.model.jobs import AxisTraffic, Job, Traffic, Transformer
from gantree.testing.builders import job
from gantree.topology.traffic.traffic import (
    EXPERT_DATA,
    Flow,
    ParallelismDegrees,
    degrees_of,
    flops_of,
    flows_of,
    groups_of,
    micro_batches,
)

MODEL = Transformer(
    parameters=8e9, layers=32, hidden=4096, sequence=8192, batch=64, micro_batch=2, kv_share=0.25
)
EXPERTS = replace(MODEL, parameters=47e9, experts=8, experts_per_token=2, expert_parameters=45e9)


def training(model: Transformer | None = MODEL, /, **ways: int) -> Job:
    return replace(job("j", members=8, gpus=8), trains=model, parallelism=tuple(ways.items()))


def flows(model: Transformer, ways: ParallelismDegrees) -> dict[str, list[tuple[str, float, int]]]:
    of_axis: dict[str, list[tuple[str, float, int]]] = {}
    for flow in flows_of(training(model), ways):
        of_axis.setdefault(flow.axis, []).append((flow.collective, flow.size_bytes, flow.calls))
    return of_axis


def test_ranks_are_laid_out_tensor_first_and_pipeline_last() -> None:
    groups = groups_of(ParallelismDegrees(tensor=2, context=2, expert=2, data=4, pipeline=2))
    first = {axis: rows[0].tolist() for axis, rows in groups.items()}
    assert first == {
        "tensor": [0, 1],
        "context": [0, 2],
        "expert": [0, 4],
        EXPERT_DATA: [0, 2, 8, 10],
        "data": [0, 2, 4, 6, 8, 10, 12, 14],
        "pipeline": [0, 16],
    }


@given(*[st.integers(1, 3)] * 5)
def test_the_groups_of_each_axis_share_out_all_ranks(
    tensor: int, context: int, expert: int, more: int, pipeline: int
) -> None:
    ways = ParallelismDegrees(tensor, context, expert, expert * more, pipeline)
    ranks = tensor * context * expert * more * pipeline
    groups = groups_of(ways)
    sizes = {"tensor": tensor, "context": context, "expert": expert, "data": ways.replicas}
    for axis, size in sizes.items():
        assert (axis in groups) == (size > 1)
        if axis in groups:
            assert sorted(groups[axis].ravel().tolist()) == list(range(ranks))
    if pipeline > 1:
        assert (np.diff(groups["pipeline"], axis=1) == ranks // pipeline).all()
        assert len(groups["pipeline"]) == ranks - ranks // pipeline


def test_data_ways_are_what_remains_and_hold_the_expert_ways() -> None:
    assert degrees_of(training(tensor=8), 64).data == 8
    assert degrees_of(training(tensor=8, expert=4), 64) == ParallelismDegrees(8, 1, 4, 8, 1)


@pytest.mark.parametrize(
    ("ways", "told"),
    [
        ({"tensor": 8, "data": 2}, "is 16 ranks, the gang has 64 GPUs"),
        ({"tensor": 3}, "is 63 ranks"),
        ({"tensor": 128}, "is 128 ranks"),
        ({"tensor": 8, "expert": 3}, "3 expert ways do not divide the 8 data ways"),
    ],
)
def test_ways_that_do_not_make_the_ranks_are_refused(ways: dict[str, int], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        degrees_of(training(**ways), 64)


def test_a_batch_is_cut_into_micro_batches() -> None:
    assert micro_batches(training(), ParallelismDegrees(8, 1, 1, 8, 1)) == 4
    with pytest.raises(BadInput, match="batch of 64 is no multiple of data 5 x micro_batch 2"):
        micro_batches(training(), ParallelismDegrees(8, 1, 1, 5, 1))


def test_tensor_groups_reduce_the_activations_four_times_a_layer_and_micro_batch() -> None:
    sent = flows(MODEL, ParallelismDegrees(8, 2, 1, 4, 1))["tensor"]
    assert sent == [("all_reduce", 2 * 8192 / 2 * 4096 * 2, 4 * 32 * 8)]


def test_context_groups_pass_keys_and_values_round_thrice() -> None:
    sent = flows(MODEL, ParallelismDegrees(2, 4, 1, 4, 1))["context"]
    assert sent == [("send_recv", 2 * (2 * 8192 / 4 * 4096 * 2) * 0.25 / 2, 3 * 3 * 32 * 8)]


def test_experts_are_sent_each_token_as_often_as_it_meets_one() -> None:
    sent = flows(EXPERTS, ParallelismDegrees(2, 1, 8, 8, 1))
    assert sent["expert"] == [("all_to_all", 2 * 8192 * 4096 * 2 * 2 / 2, 4 * 32 * 4)]
    assert sent["data"] == [("all_reduce", 2e9 / 2 / 32 * 4, 32)]
    assert sent[EXPERT_DATA] == [("all_reduce", 45e9 / 8 / 2 / 32 * 4, 32)]


def test_stages_pass_activations_on_and_gradients_back() -> None:
    assert flows(MODEL, ParallelismDegrees(8, 1, 1, 2, 4))["pipeline"] == [
        ("send_recv", 2 * 8192 * 4096 * 2 / 8, 2 * 16)
    ]


@pytest.mark.parametrize(
    ("sharded", "sent"),
    [
        ("none", [("all_reduce", 1e9, 32)]),
        ("optimizer", [("reduce_scatter", 1e9, 32), ("all_gather", 0.5e9, 32)]),
        ("parameters", [("reduce_scatter", 1e9, 32 * 4), ("all_gather", 0.5e9, 2 * 32 * 4)]),
    ],
)
def test_replicas_exchange_what_they_share_out(
    sharded: str, sent: list[tuple[str, float, int]]
) -> None:
    model = replace(MODEL, sharded=sharded)
    assert flows(model, ParallelismDegrees(1, 1, 1, 8, 1))["data"] == sent


def test_gradients_are_those_of_a_ranks_part() -> None:
    whole = flows(MODEL, ParallelismDegrees(1, 1, 1, 8, 1))["data"]
    part = flows(MODEL, ParallelismDegrees(4, 1, 1, 4, 2))["data"]
    assert sum(size * calls for _, size, calls in whole) == 8 * sum(
        size * calls for _, size, calls in part
    )


def test_what_a_job_tells_of_an_axis_is_taken_and_the_rest_derived() -> None:
    told = Traffic((AxisTraffic("data", 12e9, 4), AxisTraffic("tensor", 1e9, 1, "all_gather")))
    both = replace(training(), traffic=told)
    ways = ParallelismDegrees(8, 1, 1, 4, 2)
    sent = {flow.axis: flow for flow in flows_of(both, ways)}
    assert sent["data"] == Flow("data", "all_reduce", 3e9, 4)
    assert sent["tensor"] == Flow("tensor", "all_gather", 1e9, 1)
    assert sent["pipeline"].calls == 2 * 8


def test_arithmetic_is_six_for_each_parameter_that_a_token_meets() -> None:
    assert flops_of(MODEL) == 6 * 8e9 * 8192 * 64
    assert flops_of(EXPERTS) == pytest.approx(6 * (2e9 + 45e9 / 4) * 8192 * 64)
