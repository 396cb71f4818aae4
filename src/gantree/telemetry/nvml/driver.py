"""Readings of this machine's GPUs through NVML (nvidia-ml-py). `readings` interprets them.

NVML numbers GPUs by PCI address, as nvidia-smi prints them; CUDA may number them otherwise, which is why programs
are given UUIDs. Links are counted one by one: each active NVLink leads to another GPU or to an NVSwitch.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref
from dataclasses import dataclass
from typing import Any

import pynvml

from gantree.model.cluster import Machine
from gantree.model.errors import Unreachable
from gantree.telemetry import sysfs
from gantree.telemetry.readings import (
    GpuReading,
    PciPlace,
    Readings,
    fabric_clique,
    machine_of,
    topology_of,
)
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.devices.nvidia_names import sysfs_bus_id

MIB = 1 << 20
NO_ANSWER = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_InvalidArgument,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_ArgumentVersionMismatch,
)
"""What NVML says of links that a GPU does not have, and of questions that are older or newer than the answer."""
_P2P_READ, _P2P_WRITE = 0, 1
"""nvmlGpuP2PCapsIndex_t; the binding's own constant for reads is a tuple by mistake."""


@dataclass(frozen=True, slots=True)
class Detected:
    """This machine: its host name and its model."""

    hostname: str
    machine: Machine


def detect(name: str = "this-machine") -> Detected:
    """Read this machine; its model gets the name given. Unreachable where no NVIDIA driver answers."""
    readings = read()
    return Detected(readings.hostname, machine_of(readings, name))


def topology() -> GpuTopology:
    """Read this machine as the parsers of files do. Unreachable where no NVIDIA driver answers."""
    return topology_of(read())


def uuids() -> tuple[str, ...]:
    """Return the UUID of each GPU by index. Unreachable where no NVIDIA driver answers."""
    with driver():
        return tuple(text(pynvml.nvmlDeviceGetUUID(gpu)) for gpu in gpu_handles())


def bus_ids() -> tuple[str, ...]:
    """Return the PCI address of each GPU by index, as NVML writes it. Unreachable where no NVIDIA driver answers."""
    with driver():
        return tuple(text(pynvml.nvmlDeviceGetPciInfo(gpu).busId) for gpu in gpu_handles())


def versions() -> dict[str, str]:
    """Return the versions of the driver, and of the CUDA that it speaks. Unreachable where no NVIDIA driver answers."""
    with driver():
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        return {
            "driver": text(pynvml.nvmlSystemGetDriverVersion()),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        }


def read() -> Readings:
    """Take all readings. Unreachable where no NVIDIA driver answers or a GPU fails while it is read."""
    with driver():
        handles = gpu_handles()
        bus_ids = [text(pynvml.nvmlDeviceGetPciInfo(gpu).busId) for gpu in handles]
        gpus = tuple(_gpu(index, handles, bus_ids) for index in range(len(handles)))
    return Readings(
        hostname=socket.gethostname(),
        gpus=gpus,
        nics=sysfs.nics(),
        cpus=len(os.sched_getaffinity(0)),
        memory_GiB=sysfs.memory_GiB(),
    )


@contextmanager
def driver() -> Iterator[None]:
    """Open NVML and close it again; its errors become Unreachable."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unreachable(
            f"no NVIDIA driver answers here ({error}); a virtual cluster needs none: "
            "gantree up --virtual dgx-h100:2"
        ) from error
    try:
        yield
    except pynvml.NVMLError as error:
        raise Unreachable(f"the NVIDIA driver does not answer: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def gpu_handles() -> list[Any]:
    """Return NVML's handle of each GPU by index, while the driver is open."""
    return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]


def _gpu(index: int, handles: list[Any], bus_ids: list[str]) -> GpuReading:
    gpu = handles[index]
    bus_id = sysfs_bus_id(bus_ids[index])
    to_gpu, to_switch = _links(gpu, bus_ids)
    return GpuReading(
        uuid=text(pynvml.nvmlDeviceGetUUID(gpu)),
        name=text(pynvml.nvmlDeviceGetName(gpu)),
        memory_MiB=_memory_MiB(gpu),
        place=PciPlace(()) if bus_id is None else sysfs.gpu_place(bus_id),
        levels=tuple(None if other is gpu else _level(gpu, other) for other in handles),
        links_to_gpu=to_gpu,
        links_to_switch=to_switch,
        p2p=tuple(None if other is gpu else _p2p(gpu, other) for other in handles),
        bus_id=bus_id,
        clique=_clique(gpu),
    )


def _memory_MiB(gpu: Any) -> int | None:
    """Return the GPU's own memory; None where it has none but the CPU's (GB10, Jetson)."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total) // MIB
    except NO_ANSWER:
        return None


def _level(gpu: Any, other: Any) -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu, other))
    except NO_ANSWER:
        return None


def _p2p(gpu: Any, other: Any) -> int | None:
    """Return the worse of two statuses: of reading the other's memory, and of writing it. 0 is fine."""
    try:
        read = int(pynvml.nvmlDeviceGetP2PStatus(gpu, other, _P2P_READ))
        return read or int(pynvml.nvmlDeviceGetP2PStatus(gpu, other, _P2P_WRITE))
    except NO_ANSWER:
        return None


def _clique(gpu: Any) -> str | None:
    """Return the NVLink domain across nodes, asked as drivers since 535 allow, or else as those before them."""
    for ask, info in (
        (pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v2_t()),
        (pynvml.nvmlDeviceGetGpuFabricInfo, pynvml.c_nvmlGpuFabricInfo_t()),
    ):
        try:
            ask(gpu, byref(info))
        except NO_ANSWER:
            continue
        return fabric_clique(bytes(info.clusterUuid), info.cliqueId, info.state, info.status)
    return None


def _links(gpu: Any, bus_ids: list[str]) -> tuple[tuple[int, ...], int]:
    """Count active NVLinks to each GPU and to switches."""
    to_gpu, to_switch = [0] * len(bus_ids), 0
    places = {sysfs_bus_id(bus_id): index for index, bus_id in enumerate(bus_ids)}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not pynvml.nvmlDeviceGetNvLinkState(gpu, link):
                continue
            if _leads_to_switch(gpu, link):
                to_switch += 1
                continue
            remote = text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId)
        except NO_ANSWER:
            continue
        index = places.get(sysfs_bus_id(remote))
        if index is not None:
            to_gpu[index] += 1
    return tuple(to_gpu), to_switch


def _leads_to_switch(gpu: Any, link: int) -> bool:
    try:
        kind = int(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link))
    except NO_ANSWER:
        return False
    return kind == int(pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)


def text(value: str | bytes) -> str:
    """Return text; older versions of the binding return bytes."""
    return value.decode() if isinstance(value, bytes) else value
