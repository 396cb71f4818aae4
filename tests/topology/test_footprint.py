"""What training needs of each GPU's memory: figures of the papers that the formulas are from, and what must hold."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.model.jobs import Job, Role, Shape, Transformer
from gantree.topology.hardware.gpu_models import GPU_MODELS
from gantree.topology.traffic.footprint import (
    GIB,
    LEANEST,
    TYPICAL,
    MemoryAssumptions,
    RESERVE_GiB,
    fits,
    fitting_models,
    gpu_bytes,
    memory_of,
    why_not,
)

GPT3 = Transformer(175e9, layers=96, hidden=12288, sequence=2048, batch=64)
SMALL = Transformer(7.5e9, layers=32, hidden=4096, sequence=2048, batch=4096, gradient_bytes=2.0)

WIDE = replace(GPT3, parameters=7e9, batch=1024, micro_batch=64, sharded="parameters")


def training(
    model: Transformer, tensor: int = 1, pipeline: int = 1, data: int = 1, expert: int = 1
) -> Job:
    """A job of single-GPU members on as many GPUs as it has ways."""
    ways = (("tensor", tensor), ("expert", expert), ("data", data), ("pipeline", pipeline))
    gpus = tensor * pipeline * data
    return Job("j", (Role("w", gpus, Shape(gpus=1)),), parallelism=ways, trains=model)


def states_GB(job: Job, assumptions: MemoryAssumptions = TYPICAL) -> float:
    need = gpu_bytes(job, assumptions)
    return (need.parameters + need.gradients + need.optimizer) / 1e9


@pytest.mark.parametrize(
    ("billions", "data", "plain", "optimizer", "gradients_too", "all_of_it"),
    [
        (7.5, 64, 120, 31.4, 16.6, 1.88),
        (128, 64, 2048, 536, 284, 32),
        (1000, 1024, 16000, 4011, 2013, 15.6),
    ],
)
def test_states_are_those_of_the_zero_paper(
    billions: float,
    data: int,
    plain: float,
    optimizer: float,
    gradients_too: float,
    all_of_it: float,
) -> None:
    """arXiv:1910.02054, table 1 and figure 1: GB of each GPU, by what replicas share out."""

    def sharded(what: str) -> Job:
        return training(replace(SMALL, parameters=billions * 1e9, sharded=what), data=data)

    found = [
        states_GB(sharded("none")),
        states_GB(sharded("optimizer")),
        states_GB(sharded("optimizer"), MemoryAssumptions(shards_gradients=True)),
        states_GB(sharded("parameters")),
    ]
    assert found == pytest.approx([plain, optimizer, gradients_too, all_of_it], rel=0.005)


def test_activations_of_gpt3_are_those_of_the_paper_on_recomputation() -> None:
    """arXiv:2205.05198: s b h L / t (34 + 5 a s / h) on the first stage, a = 96; 70 % of it is attention's own."""
    job = training(GPT3, tensor=8, pipeline=8)
    kept = {
        how: gpu_bytes(job, MemoryAssumptions(how)).activations
        for how in ("none", "selective", "full")
    }
    a_layer = 2048 * 12288 / 8
    assert kept["none"] == pytest.approx(a_layer * 96 * (34 + 5 * 96 * 2048 / 12288))
    assert kept["selective"] == pytest.approx(a_layer * 96 * 34)
    assert 1 - kept["selective"] / kept["none"] == pytest.approx(0.70, abs=0.005)
    assert kept["full"] == pytest.approx(a_layer * (96 * 2 + 34))


def test_what_trained_gpt3_on_a100_with_80_GB_is_said_to_fit_there() -> None:
    """The same, table 3: 175B at tensor 8 and pipeline 8 ran on 64 GPUs, with selective recomputation."""
    job = training(GPT3, tensor=8, pipeline=8)
    assert gpu_bytes(job).GiB == pytest.approx(57.4, abs=0.1)
    assert fits(job, "A100-80GB", TYPICAL)
    assert not fits(job, "A100-40GB")


def test_keys_and_values_of_grouped_heads_are_kept_narrower() -> None:
    whole, grouped = (gpu_bytes(training(replace(SMALL, kv_share=share))) for share in (1.0, 0.25))
    assert grouped.activations / whole.activations == pytest.approx(31 / 34)


def test_experts_wait_where_a_token_meets_them() -> None:
    """Eight experts of 4 h width, two a token: 19 bytes become 2 x 19."""
    width = 32 * 8 * 8.0 * 4096**2
    model = replace(
        SMALL, parameters=width + 1e9, experts=8, experts_per_token=2, expert_parameters=width
    )
    dense = gpu_bytes(training(SMALL)).activations
    assert gpu_bytes(training(model)).activations / dense == pytest.approx((34 + 19) / 34)


models = st.builds(
    Transformer,
    parameters=st.sampled_from([1e9, 7e9, 70e9, 400e9]),
    layers=st.sampled_from([32, 64, 128]),
    hidden=st.sampled_from([2048, 8192]),
    sequence=st.sampled_from([1024, 8192]),
    batch=st.just(4096),
    value_bytes=st.sampled_from([1.0, 2.0, 4.0]),
    gradient_bytes=st.sampled_from([2.0, 4.0]),
    experts=st.just(8),
    expert_parameters=st.sampled_from([0.0, 0.9e9]),
    sharded=st.sampled_from(["none", "optimizer", "parameters"]),
)
powers = st.sampled_from([1, 2, 4, 8])


@given(models, powers, powers, powers, powers)
def test_all_gpus_together_hold_each_state_once_or_once_a_replica(
    model: Transformer, tensor: int, pipeline: int, data: int, expert: int
) -> None:
    assume(data % expert == 0)
    job = training(model, tensor, pipeline, data, expert)
    need = gpu_bytes(job, MemoryAssumptions(shards_gradients=True))
    dense, of_experts = model.parameters - model.expert_parameters, model.expert_parameters
    once = model.parameters
    every = dense * data + of_experts * data / expert
    copies = {"none": (every,) * 3, "optimizer": (every, once, once), "parameters": (once,) * 3}
    values, gradients, optimizer = copies[model.sharded]
    state_bytes = 8 if model.value_bytes == 4 else 12
    assert need.parameters * job.gpus == pytest.approx(values * model.value_bytes)
    assert need.gradients * job.gpus == pytest.approx(gradients * model.gradient_bytes)
    assert need.optimizer * job.gpus == pytest.approx(optimizer * state_bytes)


@given(models, powers, powers, powers)
def test_thrift_never_costs_memory(
    model: Transformer, tensor: int, pipeline: int, data: int
) -> None:
    job = training(model, tensor, pipeline, data)
    lavish, usual, leanest = (
        gpu_bytes(job, h).total for h in (MemoryAssumptions("none"), TYPICAL, LEANEST)
    )
    assert lavish >= usual >= leanest > RESERVE_GiB * GIB
    shared = (gpu_bytes(training(replace(model, sharded=s), tensor, pipeline, data)).optimizer
              for s in ("none", "optimizer", "parameters"))  # fmt: skip
    assert sorted(shared, reverse=True)[0] >= gpu_bytes(job).optimizer


@given(models, powers, powers, powers, st.permutations(sorted(GPU_MODELS)))
def test_models_that_fit_are_those_with_the_memory_or_of_unknown_memory(
    model: Transformer, tensor: int, pipeline: int, data: int, gpus: list[str]
) -> None:
    job = training(model, tensor, pipeline, data)
    need_GiB = gpu_bytes(job, LEANEST).total / 2**30
    sizes = [(gpu, GPU_MODELS[gpu].memory_GiB) for gpu in gpus]
    kept = tuple(gpu for gpu, GiB in sizes if GiB is None or GiB >= need_GiB)
    assert fitting_models(job, gpus) == kept
    assert [gpu for gpu in gpus if why_not(job, gpu)] == [g for g in gpus if g not in kept]


def test_a_job_without_a_model_may_fit_anywhere() -> None:
    assert fits(replace(training(SMALL), trains=None), "T4-16GB") is None
    assert fits(training(SMALL), "A-GPU-OF-TOMORROW") is None
    assert memory_of(None) is None


def test_the_memory_of_parts_of_gpus_and_of_ways_that_do_not_fit_is_not_known() -> None:
    share = Job("j", (Role("w", 1, Shape(gpu_share=0.5)),), trains=SMALL)
    odd = replace(training(SMALL, data=2), parallelism=(("tensor", 4), ("data", 4)))
    for job, words in ((share, "whole GPUs"), (odd, "16 ranks"), (Job("j", ()), "no model")):
        assert fits(job, "T4-16GB") is None
        with pytest.raises(BadInput, match=words):
            gpu_bytes(job)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (training(replace(GPT3, sharded="parameters"), tensor=8), "pipeline 8 on 64 GPUs"),
        (training(GPT3, tensor=8, data=8), "model.sharded parameters"),
        (
            training(replace(GPT3, sharded="optimizer"), tensor=4, data=16),
            "model.sharded parameters",
        ),
        (
            training(WIDE, tensor=2, data=8),
            "tensor 8",
        ),
        (training(replace(GPT3, parameters=70e9), tensor=8, data=4), "model.sharded optimizer"),
        (training(replace(GPT3, parameters=1e16), tensor=8, data=4), ""),
    ],
)
def test_a_refusal_names_the_parts_and_a_way_out(job: Job, words: str) -> None:
    told = why_not(job, "H100-80GB")
    assert told.startswith("H100-80GB has 80 GiB, a rank needs at least ")
    assert "optimizer" in told
    assert told.endswith(f"; {words} would fit" if words else ")"), told


def test_the_way_out_that_a_refusal_names_does_fit() -> None:
    job = training(replace(GPT3, parameters=70e9), tensor=8, data=4)
    assert "model.sharded optimizer would fit" in why_not(job, "H100-80GB")
    assert job.trains is not None
    assert fits(replace(job, trains=replace(job.trains, sharded="optimizer")), "H100-80GB")
