"""The use of this machine's GPUs through NVML."""

from collections.abc import Callable
from typing import Any

import pynvml

from gantree.telemetry.gpu_use import GpuUse
from gantree.telemetry.nvml.driver import NO_ANSWER, driver, gpu_handles

GIB = 1 << 30
MILLIWATTS = 1000
_NOT_TOLD = (*NO_ANSWER, pynvml.NVMLError_NoPermission)


def use_here() -> dict[int, GpuUse]:
    """The use of each GPU by index. Unreachable where no NVIDIA driver answers."""
    with driver():
        return {index: _use(gpu) for index, gpu in enumerate(gpu_handles())}


def _use(gpu: Any) -> GpuUse:
    """In MIG mode a GPU does not tell how busy it is."""
    rates = _value_or_none(pynvml.nvmlDeviceGetUtilizationRates, gpu)
    memory = _value_or_none(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    power = _value_or_none(pynvml.nvmlDeviceGetPowerUsage, gpu)
    temperature = _value_or_none(
        lambda of: pynvml.nvmlDeviceGetTemperature(of, pynvml.NVML_TEMPERATURE_GPU), gpu
    )
    return GpuUse(
        busy=None if rates is None else min(1.0, float(rates.gpu) / 100),
        memory_GiB=None if memory is None else float(memory.used) / GIB,
        memory_of_GiB=None if memory is None else float(memory.total) / GIB,
        power_W=None if power is None else float(power) / MILLIWATTS,
        temperature_C=None if temperature is None else float(temperature),
    )


def _value_or_none(ask: Callable[[Any], Any], gpu: Any) -> Any:
    try:
        return ask(gpu)
    except _NOT_TOLD:
        return None
