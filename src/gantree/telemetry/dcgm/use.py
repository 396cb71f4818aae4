"""Parses NVIDIA's DCGM exporter (:9400/metrics): the utilisation of each GPU, by node and index.

The exporter names a node by the label `Hostname` (newer ones `hostname`) and a GPU by `gpu`, its index. Of a GPU in MIG
mode there are lines for each instance too (`GPU_I_ID`); these are no figures of the GPU and are left out. How busy it
is stands in DCGM_FI_DEV_GPU_UTIL, which a GPU in MIG mode does not tell; there DCGM_FI_PROF_GR_ENGINE_ACTIVE says it,
if that is exported.
https://docs.nvidia.com/datacenter/cloud-native/gpu-telemetry/latest/dcgm-exporter.html
"""

from collections.abc import Callable, Iterator, Mapping

from gantree.telemetry.exposition import Find, Labels, finite, names_matcher
from gantree.telemetry.gpu_use import GpuUse

MIB_PER_GIB = 1024
MOST_GPUS_OF_A_NODE = 1024
BLANKS = (range(0x7FFFFFF0, 0x80000000), range(0x7FFFFFFFFFFFFFF0, 1 << 64))
"""Values that are none: DCGM's blanks of 32 and 64 bits, which some versions export."""
_UTIL, _ACTIVE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_USED, _FREE, _RESERVED = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
_POWER, _TEMPERATURE = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
_FIND = names_matcher({_UTIL, _ACTIVE, _USED, _FREE, _RESERVED, _POWER, _TEMPERATURE})


def use_in(text: str) -> dict[str, dict[int, GpuUse]]:
    """Node -> GPU -> its use; "" is the node of GPUs that come without a host name. BadInput for other text."""
    figures: dict[str, dict[int, dict[str, float]]] = {}
    for host, gpu, name, labels, value in samples_of_gpus(text, _FIND):
        if not labels.get("GPU_I_ID"):
            figures.setdefault(host, {}).setdefault(gpu, {})[name] = value
    return {
        host: {gpu: _use(told) for gpu, told in sorted(of_gpu.items())}
        for host, of_gpu in figures.items()
    }


def samples_of_gpus(text: str, find: Find) -> Iterator[tuple[str, int, str, Labels, float]]:
    """Host, GPU, name, labels and value of each figure of a GPU that is a number. Raises BadInput for other text."""
    for name, labels, value in finite(text, find):
        gpu = labels.get("gpu", "")
        if gpu.isdecimal() and int(gpu) < MOST_GPUS_OF_A_NODE and not _is_blank(value):
            host = labels.get("Hostname") or labels.get("hostname", "")
            yield host, int(gpu), name, labels, value


def _is_blank(value: float) -> bool:
    return value >= BLANKS[0].start and any(int(value) in blanks for blanks in BLANKS)


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
