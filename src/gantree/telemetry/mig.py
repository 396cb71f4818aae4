"""MIG instances on this machine, by NVML: their positions, and the UUIDs by which CUDA finds them.

NVML lists MIG *devices*: compute instances, each inside a GPU instance. One that fills its GPU instance is named after
the profile alone ("... MIG 3g.40gb"); others ("MIG 1c.3g.40gb") are pieces of one, and nothing that gantree gives out.
Where an instance starts is told only to those who may read its capability (root, as a rule).
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from gantree.model.placements import MigPart
from gantree.telemetry.nvml.driver import NO_ANSWER, driver, gpu_handles, text

_WHOLE_PROFILE = re.compile(r" MIG ([1-9][0-9]?g\.[0-9]{1,4}gb(?:[+-][a-z.]{1,8})?)\Z")
_NOT_TOLD = (*NO_ANSWER, pynvml.NVMLError_NoPermission)


@dataclass(frozen=True, slots=True)
class MigReading:
    """One MIG device as NVML tells: its GPU by index, its name, the memory slice where it starts (None: not told)."""

    gpu: int
    name: str
    start: int | None
    uuid: str


def mig_instances() -> Mapping[MigPart, str]:
    """UUID of each MIG instance that is there. Unreachable where no NVIDIA driver answers."""
    with driver():
        found = [each for index, gpu in enumerate(gpu_handles()) for each in _devices(index, gpu)]
    return instances_of(found)


def instances_of(readings: Iterable[MigReading]) -> dict[MigPart, str]:
    """Return the UUID of each instance with known profile and position."""
    found = {}
    for reading in readings:
        profile = _WHOLE_PROFILE.search(reading.name)
        if profile is not None and reading.start is not None:
            found[MigPart(reading.gpu, profile[1], reading.start)] = reading.uuid
    return found


def _devices(index: int, gpu: Any) -> Iterator[MigReading]:
    """The MIG devices of one GPU; their numbers may have gaps."""
    try:
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except NO_ANSWER:
        return
    for number in range(most):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
        except (*NO_ANSWER, pynvml.NVMLError_NotFound):
            continue
        name, uuid = pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device)
        yield MigReading(index, text(name), _start(gpu, device), text(uuid))


def _start(gpu: Any, device: Any) -> int | None:
    try:
        instance = pynvml.nvmlDeviceGetGpuInstanceById(
            gpu, pynvml.nvmlDeviceGetGpuInstanceId(device)
        )
        return int(pynvml.nvmlGpuInstanceGetInfo(instance).placement.start)
    except _NOT_TOLD:
        return None
