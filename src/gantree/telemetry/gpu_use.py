"""Utilisation of a GPU from its counters: busy share, memory, watts, degrees. Readers: `dcgm.use`, `nvml.use`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU now; None is not told. busy: the share of the last moments in which it computed, 0 to 1."""

    busy: float | None = None
    memory_GiB: float | None = None
    memory_of_GiB: float | None = None
    power_W: float | None = None
    temperature_C: float | None = None


UseOfGpu = Mapping[int, GpuUse]
"""By the index of a GPU on its node."""
