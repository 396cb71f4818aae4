"""Copies over several GPUs, and models of which a token reads a part: what memory, speed and places go by."""

import pytest

from gantree.formats import read_cluster
from gantree.model.jobs import Slices
from gantree.model.served_models import ServedModel, ServingDemand
from gantree.planning.rightsizing.serving.known_models import known_model
from gantree.planning.rightsizing.serving.memory import cache_part
from gantree.planning.rightsizing.serving.sizing import NVLINK, serving_options
from gantree.topology.fabric.fabric import Fabric

PAIRS = """
name: pairs
tiers: [node]
machines:
  pairs:
    gpus: 4
    gpu: A6000-48GB
    links: [[X, NV4, SYS, SYS], [NV4, X, SYS, SYS], [SYS, SYS, X, NV4], [SYS, SYS, NV4, X]]
nodes: [{names: n0, machine: pairs}]
"""


@pytest.mark.parametrize(
    ("kv_heads", "ways", "part"), [(8, 4, 1 / 4), (8, 8, 1 / 8), (2, 8, 1 / 2), (None, 8, 1 / 8)]
)
def test_each_gpu_has_one_head_of_keys_and_values_at_least(
    kv_heads: int | None, ways: int, part: float
) -> None:
    model = ServedModel("m", 1e9, 16, 2048, 512, kv_heads=kv_heads)
    assert cache_part(model, ways) == part


def test_a_token_of_mixtral_meets_two_of_eight_experts_and_many_tokens_meet_all() -> None:
    """Mistral AI gives 46.7B parameters, of which a token uses 12.9B (arXiv:2401.04088)."""
    model = known_model("mixtral-8x7b")
    assert model.active_parameters == pytest.approx(12.9e9, rel=0.01)
    assert model.read_experts(256) == pytest.approx(model.expert_parameters)


def test_the_gpus_of_a_copy_share_an_nvlink_domain_where_one_is_large_enough() -> None:
    fabric = Fabric.build(read_cluster(PAIRS, "cluster.yaml"))
    demand = ServingDemand(3072, 1024, 4096, 1, 5.0, 1.0)
    ways = serving_options(known_model("llama-3.1-8b"), demand, fabric)
    slices = {
        way.device.gpus: way.job.topology.slices for way in ways if way.job and not way.device.part
    }
    assert slices == {1: (), 2: (Slices(1, NVLINK),), 4: ()}
