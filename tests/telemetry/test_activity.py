"""Whether a GPU computes: the states of an H100 as measured, and what figures alone do not tell."""

import pytest

from gantree.telemetry.activity import computes, profiles_compute
from gantree.telemetry.dcgm.health import signs_in

UTIL, TENSOR, DRAM, FP32 = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
)
MEASURED = [
    ("a matrix product in bf16", 98.9, 0.926, 0.0, 0.234, True),
    ("a matrix product in fp32", 98.8, 0.0, 0.765, 0.040, True),
    ("copies within its memory", 99.3, 0.0, 0.0, 0.893, True),
    ("24 blocks that poll a flag", 99.8, 0.0, 0.0, 0.00001, False),
    ("one block that spins", 100.0, 0.0, 0.0, 0.00001, False),
    ("small layers, bound by the host", 15.6, 0.0005, 0.00001, 0.00001, False),
    ("nothing, with a CUDA context", 0.0, 0.0, 0.0, 0.00001, False),
]


@pytest.mark.parametrize(("state", "util", "tensor", "fp32", "dram", "expected"), MEASURED)
def test_states_of_an_h100_are_told_apart(
    state: str, util: float, tensor: float, fp32: float, dram: float, expected: bool
) -> None:
    figures = {UTIL: util, TENSOR: tensor, FP32: fp32, DRAM: dram}
    assert computes(figures) is expected, state


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, None),
        ({UTIL: 100.0}, True),
        ({UTIL: 0.0}, False),
        ({UTIL: 100.0, TENSOR: 0.0}, True),  # memory activity is not told: it may copy
        ({TENSOR: 0.0, DRAM: 0.0}, False),
        ({TENSOR: 0.0, DRAM: 0.01}, True),
    ],
)
def test_without_profiling_counters_the_utilisation_counts(
    figures: dict[str, float], expected: bool | None
) -> None:
    assert computes(figures) is expected


def instance(gpu: int, number: int, profile: str, tensor: float, dram: float = 0.0) -> str:
    labels = f'{{gpu="{gpu}",Hostname="n0",GPU_I_PROFILE="{profile}",GPU_I_ID="{number}"}}'
    return f"{TENSOR}{labels} {tensor}\n{DRAM}{labels} {dram}\n"


def test_instances_of_mig_are_not_taken_for_their_gpu() -> None:
    text = instance(0, 7, "1g.10gb", 0.9) + (
        f'{TENSOR}{{gpu="1",Hostname="n0"}} 0.9\n{DRAM}{{gpu="1",Hostname="n0"}} 0.5\n'
    )
    found = signs_in(text)["n0"]
    assert (computes(found[0]), computes(found[1])) == (None, True)


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ([(7, "1g.10gb", 0.9), (8, "1g.10gb", 0.4)], {"1g.10gb": True}),
        ([(7, "1g.10gb", 0.0), (8, "1g.10gb", 0.0), (1, "3g.40gb", 0.5)], {"1g.10gb": False, "3g.40gb": True}),
        ([(7, "1g.10gb", 0.9), (8, "1g.10gb", 0.0)], {}),
        ([(7, "", 0.9)], {}),
    ],
    ids=["all compute", "by profile", "nobody knows which", "of an older exporter"],
)  # fmt: skip
def test_instances_of_one_profile_are_known_where_they_agree(
    instances: list[tuple[int, str, float]], expected: dict[str, bool]
) -> None:
    text = "".join(instance(0, *each) for each in instances)
    assert profiles_compute(signs_in(text)["n0"][0]) == expected


def test_an_instance_without_memory_activity_is_neither_busy_nor_idle() -> None:
    memory = instance(0, 7, "1g.10gb", 0.0).splitlines()[1]
    text = instance(0, 7, "1g.10gb", 0.0).replace(memory, "")
    assert profiles_compute(signs_in(text)["n0"][0]) == {}
