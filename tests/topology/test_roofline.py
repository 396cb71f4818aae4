"""How fast GPU models train what a job describes, before it is placed."""

from dataclasses import replace

import pytest

from gantree.model.jobs import Job, Role, Shape, Transformer
from gantree.topology.cost.roofline import MEMORY_GBps, least_step_s
from gantree.topology.hardware.constants import DEFAULT_MFU
from gantree.topology.hardware.gpu_models import GPU_MODELS
from gantree.topology.traffic.footprint import gpu_bytes

MODEL = Transformer(7e9, layers=32, hidden=4096, sequence=4096, batch=256)


def training(model: Transformer = MODEL, gpus: int = 8) -> Job:
    return Job(
        "j", (Role("w", 1, Shape(gpus=gpus)),), parallelism=(("tensor", gpus),), trains=model
    )


def test_a_large_batch_takes_as_long_as_its_arithmetic() -> None:
    """6 N tokens over 8 peaks at the default share of them."""
    tokens = 256 * 4096
    expected_s = 6 * 7e9 * tokens / (8 * 989.4e12 * DEFAULT_MFU)
    assert least_step_s(training(), "H100-80GB") == pytest.approx(expected_s)


def test_more_memory_bandwidth_alone_does_not_help_where_arithmetic_binds() -> None:
    assert least_step_s(training(), "H100-80GB") == least_step_s(training(), "H200-141GB")


def test_a_tiny_batch_waits_for_memory() -> None:
    """Tokens so few that reading the values takes longer than using them: in proportion to the bandwidths."""
    tiny = training(replace(MODEL, sequence=16, batch=1))
    h100, h200 = least_step_s(tiny, "H100-80GB"), least_step_s(tiny, "H200-141GB")
    assert h100 is not None
    assert h200 is not None
    assert h100 / h200 == pytest.approx(4800 / 3350)
    values, states = 7e9 / 8 * 2, 7e9 / 8 * 12
    assert h100 * 3350e9 > 3 * values + 2 * states


def test_replicas_that_share_their_values_out_read_all_of_them() -> None:
    """Gathered for each pass: three times the whole model, whatever part of it rests on the GPU."""
    few = replace(MODEL, sequence=1, batch=8, sharded="parameters")
    job = replace(training(few), parallelism=(("data", 8),))
    need = gpu_bytes(job)
    moved = 3 * 7e9 * 2 + 2 * need.activations + 2 * need.optimizer + need.gradients
    assert least_step_s(job, "H100-80GB") == pytest.approx(moved / 3350e9)


@pytest.mark.parametrize("gpu", [None, "K80-12GB", "of-tomorrow"])
def test_a_gpu_without_a_known_peak_has_no_known_speed(gpu: str | None) -> None:
    assert least_step_s(training(), gpu) is None


def test_a_job_that_describes_no_model_has_no_known_speed() -> None:
    assert least_step_s(replace(training(), trains=None), "H100-80GB") is None


def test_every_rate_of_memory_is_of_a_model_of_the_catalogue() -> None:
    assert [gpu for gpu in MEMORY_GBps if gpu not in GPU_MODELS] == []
