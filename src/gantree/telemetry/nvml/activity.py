"""What this machine's GPUs do, through NVML: the figures of DCGM's exporter by its names (`activity`).

From Hopper on NVML has DCGM's profiling counters too (GPU performance monitoring, GPM): their averages between two
samples, which are taken WINDOW_S apart. Nothing is kept between two questions, and NVML is closed again: an open driver
would keep a GPU from being reset. Older GPUs tell their utilisation only.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from types import MappingProxyType
from typing import Any

import pynvml

from gantree.model.errors import Unreachable
from gantree.telemetry.activity import FP16, FP32, FP64, MEMORY, TENSOR, UTILISATION
from gantree.telemetry.nvml.driver import NO_ANSWER, driver, gpu_handles

WINDOW_S = 1.0
PERCENT = 100.0
METRIC_OF_FIGURE: Mapping[str, int] = MappingProxyType(
    {
        TENSOR: pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        FP64: pynvml.NVML_GPM_METRIC_FP64_UTIL,
        FP32: pynvml.NVML_GPM_METRIC_FP32_UTIL,
        FP16: pynvml.NVML_GPM_METRIC_FP16_UTIL,
        MEMORY: pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    }
)
"""nvmlGpmMetricId_t of each figure; GPM tells percent."""
_NOT_TOLD = (*NO_ANSWER, pynvml.NVMLError_NoPermission)


def has_driver() -> bool:
    """Whether an NVIDIA driver answers on this machine."""
    try:
        with driver():
            return True
    except Unreachable:
        return False


def activity_here() -> dict[int, dict[str, float]]:
    """The figures of each GPU over WINDOW_S, for which it waits. Unreachable where no NVIDIA driver answers."""
    with driver(), ExitStack() as samples:
        gpus = dict(enumerate(gpu_handles()))
        begun = {index: _sample(gpu, samples) for index, gpu in gpus.items() if _has_gpm(gpu)}
        if begun:
            time.sleep(WINDOW_S)
        found = {index: dict(_utilisation(gpu)) for index, gpu in gpus.items()}
        for index, before in begun.items():
            found[index] |= _averages(before, _sample(gpus[index], samples))
    return found


def _has_gpm(gpu: Any) -> bool:
    try:
        return bool(pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice)
    except _NOT_TOLD:
        return False


def _sample(gpu: Any, samples: ExitStack) -> Any:
    """A sample of now, which is freed with the others."""
    sample = pynvml.nvmlGpmSampleAlloc()
    samples.callback(pynvml.nvmlGpmSampleFree, sample)
    return pynvml.nvmlGpmSampleGet(gpu, sample)


def _averages(before: Any, after: Any) -> dict[str, float]:
    """The figures between two samples that the GPU has."""
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = len(METRIC_OF_FIGURE)
    asked.sample1, asked.sample2 = before, after
    for place, metric in enumerate(METRIC_OF_FIGURE.values()):
        asked.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    told = zip(METRIC_OF_FIGURE, asked.metrics, strict=False)
    return {
        name: float(metric.value) / PERCENT
        for name, metric in told
        if metric.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _utilisation(gpu: Any) -> Iterator[tuple[str, float]]:
    """In MIG mode a GPU does not tell it."""
    with suppress(*_NOT_TOLD):
        yield UTILISATION, float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
