"""Which jobs serve a known model, what is asked of them, and whether a smaller device does."""

from dataclasses import replace

import pytest

from gantree.formats import read_cluster, read_job
from gantree.model.jobs import Job
from gantree.planning.rightsizing.serving.served_by_command import served_by
from gantree.planning.rightsizing.serving.smaller import smaller_way
from gantree.testing.builders import job
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_PRICES, Quote

CLUSTER = """
name: serving
tiers: [node]
machines: {l4: {gpus: 8, gpu: L4-24GB}}
nodes: [{names: h0, machine: dgx-h100}, {names: l0, machine: l4}]
"""
FABRIC = Fabric.build(read_cluster(CLUSTER, "cluster.yaml"))
H100 = (("H100-80GB", 1.0),)


def runs(words: str) -> Job:
    """A job with one GPU and this command."""
    made = job("chat", gpus=1)
    return replace(made, roles=(replace(made.roles[0], run=tuple(words.split())),))


@pytest.mark.parametrize(
    ("words", "name", "context", "requests"),
    [
        ("vllm serve meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b", 4096, 256),
        (
            "vllm serve Qwen/Qwen2.5-7B --max-model-len 8192 --max-num-seqs=32",
            "qwen2.5-7b",
            8192,
            32,
        ),
        (
            "python -m sglang.launch_server --model-path mistralai/Mistral-7B-Instruct-v0.3",
            "mistral-7b",
            4096,
            256,
        ),
        (
            "python -m vllm.entrypoints.openai.api_server --model=microsoft/phi-4",
            "phi-4",
            4096,
            256,
        ),
        ("/opt/bin/vllm serve llama-3.1-8b --max-num-seqs many", "llama-3.1-8b", 4096, 256),
        ("python train.py meta-llama/Llama-3.2-1B", None, 0, 0),
        ("vllm serve my/model", None, 0, 0),
    ],
)
def test_the_command_of_a_server_names_model_context_and_requests(
    words: str, name: str | None, context: int, requests: int
) -> None:
    found = served_by(runs(words))
    if found is None:
        assert name is None
    else:
        model, demand = found
        assert (model.name, demand.context, demand.requests) == (name, context, requests)


@pytest.mark.parametrize(
    ("words", "weights", "cache"),
    [
        ("", 2.0, 2.0),
        ("--quantization fp8", 1.0, 2.0),
        ("--quantization=awq_marlin --kv-cache-dtype fp8_e5m2", 0.52, 1.0),
        ("-q gptq --dtype half", 0.52, 2.0),
        ("--dtype float32", 4.0, 4.0),
        ("--dtype=bfloat16 --quantization unknown-kind", 2.0, 2.0),
        ("--quantization", 2.0, 2.0),
    ],
)
def test_the_command_says_in_how_many_bytes_weights_and_cache_are_kept(
    words: str, weights: float, cache: float
) -> None:
    found = served_by(runs(f"vllm serve Qwen/Qwen2.5-7B {words}"))
    assert found is not None
    assert (found[1].weight_bytes, found[1].cache_bytes) == (weights, cache)


def test_a_description_of_a_service_goes_before_its_command() -> None:
    text = """
name: chat
gang:
  - {role: prefill, members: 1, each: {gpus: 1}, run: [x]}
  - {role: decode, members: 1, each: {gpus: 1}, run: [vllm, serve, llama-3.1-8b]}
parallelism: {prefill: 1, decode: 1}
model: {parameters: 1B, layers: 16, hidden: 2048, heads: 32, kv_heads: 8, sequence: 3072, batch: 32}
"""
    (described,) = read_job(text, "job.yaml")
    found = served_by(described)
    assert found is not None
    model, demand = found
    assert (model.name, model.parameters, model.kv_width) == ("chat", 1e9, 512)
    assert (demand.prompt, demand.answer, demand.requests) == (3072, 1024, 32)


def test_the_least_device_by_price_or_of_the_same_gpu_without_one() -> None:
    few = runs("vllm serve llama-3.2-1b --max-num-seqs 8")
    way = smaller_way(few, H100, FABRIC)
    assert way is not None and way.words == "share 0.125 of H100-80GB"
    assert way.cost_share == pytest.approx(0.125)
    cheap = LIST_PRICES.replaced_by([Quote("L4-24GB", "on_demand", 0.5, "2026-11-01", "test")])
    priced = smaller_way(few, H100, FABRIC, cheap)
    assert priced is not None and priced.words == "share 0.5 of L4-24GB"
    assert priced.cost_share == pytest.approx(0.25 / 6.88)
    assert smaller_way(few, (), FABRIC) is None
    assert smaller_way(runs("vllm serve llama-3.2-1b"), (("L4-24GB", 0.5),), FABRIC) is None
    assert smaller_way(runs("vllm serve llama-3-70b"), (("H100-80GB", 4.0),), FABRIC) is None
