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
from gantree.telemetry.gpu_draw import NVLINK_SENT, POWER
from gantree.telemetry.nvml.driver import NO_ANSWER, driver, gpu_handles

WINDOW_S = 1.0
PERCENT, MILLIWATTS, MIB = 100.0, 1000.0, float(1 << 20)
METRIC_OF_FIGURE: Mapping[str, int] = MappingProxyType(
    {
        TENSOR: pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        FP64: pynvml.NVML_GPM_METRIC_FP64_UTIL,
        FP32: pynvml.NVML_GPM_METRIC_FP32_UTIL,
        FP16: pynvml.NVML_GPM_METRIC_FP16_UTIL,
        MEMORY: pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
        NVLINK_SENT: pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
    }
)
"""nvmlGpmMetricId_t of each figure; GPM tells percent, and MiB a second."""
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
        found = {index: dict(_at_once(gpu)) for index, gpu in gpus.items()}
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
        name: float(metric.value) * (MIB if name == NVLINK_SENT else 1 / PERCENT)
        for name, metric in told
        if metric.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _at_once(gpu: Any) -> Iterator[tuple[str, float]]:
    """What needs no second sample. In MIG mode a GPU does not tell its utilisation."""
    with suppress(*_NOT_TOLD):
        yield UTILISATION, float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
    with suppress(*_NOT_TOLD):
        yield POWER, float(pynvml.nvmlDeviceGetPowerUsage(gpu)) / MILLIWATTS
