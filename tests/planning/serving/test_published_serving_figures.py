"""Memory and time of serving against what vLLM, lmdeploy and TensorRT-LLM published, each row with its source."""

from collections.abc import Callable
from functools import lru_cache

import pytest

from gantree.formats import read_cluster
from gantree.model.served_models import ServingDemand
from gantree.planning.rightsizing.serving.devices import Device, devices_of
from gantree.planning.rightsizing.serving.known_models import KNOWN_MODELS, known_model
from gantree.planning.rightsizing.serving.memory import (
    GIB,
    cache_bytes,
    cache_part,
    serving_memory,
    weight_bytes,
)
from gantree.planning.rightsizing.serving.speed import CopySpeed
from gantree.topology.cost.pricing import Pricer
from gantree.topology.fabric.fabric import Fabric

FEED_FORWARD = {
    "llama-2-7b": 11008, "llama-2-13b": 13824, "llama-2-70b": 28672, "llama-3-8b": 14336, "llama-3-70b": 28672,
    "llama-3.1-8b": 14336, "llama-3.1-70b": 28672, "llama-3.1-405b": 53248, "llama-3.2-1b": 8192, "llama-3.2-3b": 8192,
    "llama-3.3-70b": 28672, "mistral-7b": 14336, "mixtral-8x7b": 14336, "mixtral-8x22b": 16384, "qwen2.5-0.5b": 4864,
    "qwen2.5-1.5b": 8960, "qwen2.5-3b": 11008, "qwen2.5-7b": 18944, "qwen2.5-14b": 13824, "qwen2.5-32b": 27648,
    "qwen2.5-72b": 29568, "qwen3-8b": 12288, "qwen3-32b": 25600, "qwen3-30b-a3b": 768, "phi-4": 17920,
}  # fmt: skip
"""`intermediate_size` of each model's config.json; of experts `moe_intermediate_size`."""

VLLM_8B, VLLM_3090 = "vllm-project/vllm pull 10511", "vllm-project/vllm issue 10517"
VLLM_A100, VLLM_INT8 = "vllm-project/vllm pull 2031", "vllm-project/vllm pull 12569"

WEIGHTS = [
    ("llama-3-8b", 2.0, 1, 14.96, VLLM_8B),
    ("llama-3-8b", 2.0, 2, 7.48, VLLM_8B),
    ("llama-3.1-8b", 2.0, 1, 14.99, VLLM_3090),
    ("llama-3.1-70b", 1.0, 1, 67.72, VLLM_INT8),
    ("llama-3.2-1b", 2.0, 1, 2.30, "model.safetensors of meta-llama/Llama-3.2-1B, 2.47 GB"),
    ("llama-2-7b", 2.0, 1, 12.55, "NIM for LLMs 1.0.0, support matrix: 12.62 GB with its engine"),
]
"""(model, bytes a parameter, ways, GiB on each GPU, source)."""

TOKENS = [
    ("llama-3-8b", "H100-80GB", 1, 8192, 53.29 * 2**30 / 2**17, 0.03, VLLM_8B),
    ("llama-3.1-8b", "RTX3090-24GB", 1, 20000, 1952 * 16, 0.12, VLLM_3090),
    ("llama-2-7b", "A100-80GB", 1, 4096, 7351 * 16, 0.03, VLLM_A100),
]
"""(model, GPU, ways, context, tokens for which vLLM had room at its default share, how near, source)."""

LMDEPLOY = "InternLM/lmdeploy docs/en/benchmark/a100_fp16.md, v0.1.0"
THROUGHPUT = [
    ("llama-2-7b", 1, 1, 128, 128, 102.21),
    ("llama-2-7b", 1, 1, 2048, 2048, 93.78),
    ("llama-2-7b", 1, 16, 128, 128, 1272.47),
    ("llama-2-7b", 1, 16, 128, 2048, 1010.62),
    ("llama-2-7b", 1, 16, 2048, 128, 348.87),
    ("llama-2-7b", 1, 32, 128, 128, 2125.47),
    ("llama-2-7b", 1, 32, 128, 2048, 1462.12),
    ("llama-2-7b", 1, 64, 128, 2048, 1852.06),
    ("llama-2-70b", 4, 1, 128, 128, 33.63),
    ("llama-2-70b", 4, 1, 2048, 2048, 31.9),
    ("llama-2-70b", 4, 16, 128, 2048, 482.99),
    ("llama-2-70b", 4, 16, 2048, 128, 189.34),
    ("llama-2-70b", 4, 16, 2048, 2048, 399.42),
    ("llama-2-70b", 4, 32, 2048, 2048, 636.23),
    ("llama-2-70b", 4, 64, 128, 128, 1159.84),
    ("llama-2-70b", 4, 64, 2048, 2048, 930.46),
]
"""(model, ways on A100-80GB, requests at once, prompt, answer, tokens a second) of LMDEPLOY."""

TENSORRT = "NVIDIA/TensorRT-LLM docs/source/performance.md, v0.6.1, low latency"
FIRST_TOKEN = [
    ("llama-2-7b", "A100-80GB", 1, 2.0, 2048, 133),
    ("llama-2-70b", "A100-80GB", 4, 2.0, 2048, 377),
    ("llama-2-7b", "H100-80GB", 1, 1.0, 2048, 36),
    ("llama-2-70b", "H100-80GB", 4, 1.0, 2048, 109),
    ("llama-2-7b", "L40S-48GB", 1, 1.0, 2048, 73),
    ("llama-2-7b", "A100-80GB", 1, 2.0, 128, 16),
    ("llama-2-70b", "A100-80GB", 4, 2.0, 128, 47),
    ("llama-2-7b", "L40S-48GB", 1, 1.0, 128, 14),
]
"""(model, GPU, ways, bytes a parameter, prompt, milliseconds to the first token) of TENSORRT."""


def demand(prompt: int, answer: int, weights: float = 2.0, context: int = 0) -> ServingDemand:
    return ServingDemand(
        prompt, answer, context or prompt + answer, 1, 9.0, 9.0, weights, cache_bytes=2.0
    )


def whole(gpu: str, ways: int) -> Device:
    return next(each for each in devices_of(gpu, 8) if not each.part and each.gpus == ways)


@lru_cache
def pricer(machine: str) -> Pricer:
    text = f"name: one\ntiers: [node]\nnodes: [{{names: n0, machine: {machine}}}]\n"
    return Pricer(Fabric.build(read_cluster(text, "cluster.yaml")))


def all_reduce(gpu: str, ways: int) -> Callable[[float], float]:
    machine = "dgx-a100" if gpu.startswith("A100") else "dgx-h100"
    ranks = [(0, gpu) for gpu in range(ways)]
    return lambda size: pricer(machine).price("all_reduce", size, ranks).seconds


@pytest.mark.parametrize("name", sorted(KNOWN_MODELS))
def test_parameters_add_up_from_the_layers(name: str) -> None:
    model = known_model(name)
    assert model.heads and model.kv_heads
    queries = model.heads * (model.kv_width // model.kv_heads)
    attention = model.hidden * (2 * queries + 2 * model.kv_width)
    feed_forward = 3 * model.hidden * FEED_FORWARD[name] * max(1, model.experts)
    assert model.parameters == pytest.approx(
        model.layers * (attention + feed_forward) + model.table_parameters, rel=0.005
    )
    if model.experts:
        assert model.expert_parameters == pytest.approx(model.layers * feed_forward, rel=0.005)


@pytest.mark.parametrize(("name", "value_bytes", "ways", "GiB", "source"), WEIGHTS)
def test_weights_take_what_engines_print(
    name: str, value_bytes: float, ways: int, GiB: float, source: str
) -> None:
    model, asked = known_model(name), demand(1024, 1024, value_bytes)
    each = weight_bytes(model, asked, model.parameters) / ways / GIB
    assert each == pytest.approx(GiB, rel=0.01), source


@pytest.mark.parametrize(("name", "gpu", "ways", "context", "tokens", "near", "source"), TOKENS)
def test_the_cache_has_room_for_as_many_tokens_as_vllm_found(
    name: str, gpu: str, ways: int, context: int, tokens: float, near: float, source: str
) -> None:
    model, asked = known_model(name), demand(context // 2, context - context // 2)
    memory = serving_memory(model, whole(gpu, ways), asked)
    each = cache_bytes(model, asked, 1) * cache_part(model, ways) / GIB
    assert memory.cache / each == pytest.approx(tokens, rel=near), source


def test_the_cache_of_a_70b_on_four_gpus_is_between_what_two_versions_of_vllm_found() -> None:
    model, asked = known_model("llama-2-70b"), demand(2048, 2048)
    memory = serving_memory(model, whole("A100-80GB", 4), asked)
    tokens = memory.cache * GIB / (cache_bytes(model, asked, 1) / 4)
    assert 20865 * 16 < tokens < 31615 * 16, VLLM_A100


def test_what_a_1g_10gb_an_l4_and_one_to_four_h100_hold() -> None:
    small = next(each for each in devices_of("H100-80GB", 8) if each.part == "1g.10gb")
    assert serving_memory(known_model("llama-3.2-1b"), small, demand(3072, 1024)).requests >= 16
    assert (
        serving_memory(known_model("llama-3-8b"), whole("L4-24GB", 1), demand(3072, 1024)).requests
        >= 1
    )
    assert not serving_memory(known_model("llama-3-8b"), small, demand(3072, 1024)).requests
    room = [
        serving_memory(
            known_model("llama-3-70b"), whole("H100-80GB", ways), demand(3072, 1024)
        ).requests
        for ways in (1, 2, 4)
    ]
    assert room[0] == 0 and 0 < room[1] < 8 and room[2] > 64
    eight_bit = serving_memory(
        known_model("llama-3-70b"), whole("H100-80GB", 2), demand(3072, 1024, 1.0)
    )
    assert eight_bit.requests > 32


@pytest.mark.parametrize(("name", "ways", "requests", "prompt", "answer", "tokens_s"), THROUGHPUT)
def test_tokens_a_second_are_near_those_of_lmdeploy(
    name: str, ways: int, requests: int, prompt: int, answer: int, tokens_s: float
) -> None:
    speed = CopySpeed(
        known_model(name),
        whole("A100-80GB", ways),
        demand(prompt, answer),
        all_reduce("A100-80GB", ways),
    )
    found = requests / speed.between_tokens(requests).total
    assert found == pytest.approx(tokens_s, rel=0.2), LMDEPLOY


@pytest.mark.parametrize(("name", "gpu", "ways", "value_bytes", "prompt", "ms"), FIRST_TOKEN)
def test_the_time_to_the_first_token_is_near_that_of_tensorrt_llm(
    name: str, gpu: str, ways: int, value_bytes: float, prompt: int, ms: float
) -> None:
    asked = demand(prompt, 128, value_bytes)
    speed = CopySpeed(known_model(name), whole(gpu, ways), asked, all_reduce(gpu, ways))
    found = speed.first_token.total * 1e3
    assert found == pytest.approx(ms, rel=0.40), TENSORRT
