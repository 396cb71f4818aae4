"""Parses NVIDIA's DCGM exporter (:9400/metrics): the utilisation of each GPU, by node and index.

The exporter names a node by the label `Hostname` and a GPU by `gpu`, its index. Of a GPU in MIG mode there are lines
for each instance too (`GPU_I_ID`); these are no figures of the GPU and are left out. How busy it is stands in
DCGM_FI_DEV_GPU_UTIL, which a GPU in MIG mode does not tell; there DCGM_FI_PROF_GR_ENGINE_ACTIVE says it, if that is
exported.
https://docs.nvidia.com/datacenter/cloud-native/gpu-telemetry/latest/dcgm-exporter.html
"""

import math
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

from gantree.model.errors import BadInput
from gantree.telemetry.gpu_use import GpuUse

MIB_PER_GIB = 1024
MOST_GPUS_OF_A_NODE = 1024
_UTIL, _ACTIVE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_USED, _FREE, _RESERVED = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
_POWER, _TEMPERATURE = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
_READ = frozenset({_UTIL, _ACTIVE, _USED, _FREE, _RESERVED, _POWER, _TEMPERATURE})


def use_in(text: str) -> dict[str, dict[int, GpuUse]]:
    """Node -> GPU -> its use; "" is the node of GPUs that come without a host name. BadInput for other text."""
    figures: dict[str, dict[int, dict[str, float]]] = {}
    try:
        for host, gpu, name, value in _samples(text):
            figures.setdefault(host, {}).setdefault(gpu, {})[name] = value
    except (ValueError, KeyError, IndexError) as error:
        raise BadInput(f"no metrics in Prometheus' text format: {error}") from None
    return {
        host: {gpu: _use(told) for gpu, told in sorted(of_gpu.items())}
        for host, of_gpu in figures.items()
    }


def _samples(text: str) -> Iterator[tuple[str, int, str, float]]:
    """Host, GPU, name and value of each figure that is of a whole GPU and is a number."""
    wanted = "\n".join(line for line in text.splitlines() if line.partition("{")[0] in _READ)
    for family in text_string_to_metric_families(wanted + "\n"):
        for sample in family.samples:
            labels, gpu = sample.labels, sample.labels.get("gpu", "")
            of_an_instance = bool(labels.get("GPU_I_ID"))
            if of_an_instance or not gpu.isdecimal() or int(gpu) >= MOST_GPUS_OF_A_NODE:
                continue
            if math.isfinite(sample.value) and sample.value >= 0:
                yield labels.get("Hostname", ""), int(gpu), sample.name, float(sample.value)


def _use(told: Mapping[str, float]) -> GpuUse:
    used, free = _in_GiB(told.get(_USED)), _in_GiB(told.get(_FREE))
    reserved = _in_GiB(told.get(_RESERVED)) or 0.0
    return GpuUse(
        busy=_busy(told.get),
        memory_GiB=used,
        memory_of_GiB=None if used is None or free is None else used + free + reserved,
        power_W=told.get(_POWER),
        temperature_C=told.get(_TEMPERATURE),
    )


def _busy(told: Callable[[str], float | None]) -> float | None:
    percent, active = told(_UTIL), told(_ACTIVE)
    if percent is not None:
        return min(1.0, percent / 100)
    return None if active is None else min(1.0, active)


def _in_GiB(MiB: float | None) -> float | None:
    return None if MiB is None else MiB / MIB_PER_GIB
