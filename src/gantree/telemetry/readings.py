"""From raw readings of a machine to a machine model. Pure: who takes the readings is `nvml` and `sysfs`.

A path between a GPU and a NIC has no reading of its own; it is told from the two places in the PCI tree, in the
same classes that drivers use between GPUs: PIX behind one switch, PXB behind several, PHB over one root complex,
NODE within a NUMA node, SYS beyond.
"""

import math
import re
from dataclasses import dataclass, replace
from itertools import takewhile

from gantree.model.cluster import Machine
from gantree.topology.catalog import SELF
from gantree.topology.discovery.gpus import GpuTopology, machine_from

LINK_OF_LEVEL = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's nvmlGpuTopologyLevel_t as link classes; 0 (INTERNAL) is two GPUs of one board behind its switch."""
NOMINAL_GB = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 141, 180, 186, 288)
"""Memory sizes in product names. Drivers report a little less: 81559 MiB of 80GB, 46068 of 48GB, 189471 of 186GB."""

_BRANDS = re.compile(r"\b(NVIDIA|Tesla|GeForce|Quadro)\b|RTX (?=A[0-9])", re.IGNORECASE)
_VARIANT = re.compile(
    r"SXM[0-9]*|PCIE?|NVL|OAM|HBM[0-9]e?|[0-9]+GB|GPU|Generation|Server|Workstation|Edition|Blackwell|Pascal",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where a device sits: the names from its root complex down to itself, and its NUMA node, if it has one."""

    path: tuple[str, ...]
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as NVML tells. levels[other] is the common ancestor's level, None for itself or if not told.

    links_to_gpu[other] counts active NVLinks to another GPU; links_to_switch those to NVSwitches.
    """

    uuid: str
    name: str
    memory_MiB: int
    place: PciPlace
    levels: tuple[int | None, ...]
    links_to_gpu: tuple[int, ...]
    links_to_switch: int = 0


@dataclass(frozen=True, slots=True)
class NicReading:
    """One RDMA device and its place."""

    name: str
    place: PciPlace


@dataclass(frozen=True, slots=True)
class Readings:
    """All that was read of a machine; memory_GiB is what its operating system has."""

    hostname: str
    gpus: tuple[GpuReading, ...]
    nics: tuple[NicReading, ...]
    cpus: int
    memory_GiB: float


def machine_of(readings: Readings, name: str) -> Machine:
    """Return the machine model of these readings. A machine of mixed GPU models has model None."""
    gpus = range(len(readings.gpus))
    topology = GpuTopology(
        links=tuple(tuple(gpu_link(readings.gpus, a, b) for b in gpus) for a in gpus),
        nic_links=tuple(
            tuple(nic_link(gpu.place, nic.place) for nic in readings.nics) for gpu in readings.gpus
        ),
        numa=tuple(gpu.place.numa for gpu in readings.gpus),
        one_numa_node=all(gpu.place.numa is None for gpu in readings.gpus),
        cpu_sets=(None,) * len(gpus),
        nics=tuple(nic.name for nic in readings.nics),
        device_of_nic={},
    )
    models = {model_name(gpu.name, gpu.memory_MiB) for gpu in readings.gpus}
    return replace(
        machine_from(topology, name),
        gpu=models.pop() if len(models) == 1 else None,
        cpus=float(readings.cpus),
        memory_GiB=readings.memory_GiB,
    )


def gpu_link(gpus: tuple[GpuReading, ...], a: int, b: int) -> str | None:
    """Return the link class between two GPUs: NVLinks straight or over switches before the PCI path."""
    if a == b:
        return SELF
    switched = min(gpus[a].links_to_switch, gpus[b].links_to_switch)
    width = max(gpus[a].links_to_gpu[b], switched)
    level = gpus[a].levels[b]
    return f"NV{width}" if width else None if level is None else LINK_OF_LEVEL.get(level)


def nic_link(gpu: PciPlace, nic: PciPlace) -> str | None:
    """Return the class of the path between a GPU and a NIC; None where one has no place in the PCI tree."""
    if not gpu.path or not nic.path:
        return None
    if gpu.path[0] != nic.path[0]:
        return "NODE" if gpu.numa == nic.numa else "SYS"
    common = len(
        list(takewhile(lambda pair: pair[0] == pair[1], zip(gpu.path, nic.path, strict=False)))
    )
    if common == 1:
        return "PHB"
    # Below a switch come one of its own ports and the device: two steps. More is another switch.
    return "PIX" if max(len(gpu.path), len(nic.path)) - common <= 2 else "PXB"


def model_name(product: str, memory_MiB: int) -> str:
    """Return the catalogue's name of a GPU: "NVIDIA H100 80GB HBM3" with 81559 MiB is "H100-80GB".

    The size is told from the memory, not the name: "NVIDIA GH200 480GB" counts the CPU's.
    """
    words = re.split(r"[\s()/-]+", _BRANDS.sub("", product))
    kept = [word for word in words if word and not _VARIANT.fullmatch(word)]
    memory_GiB = memory_MiB / 1024
    size = next((size for size in NOMINAL_GB if size >= memory_GiB), math.ceil(memory_GiB))
    return f"{''.join(kept) or 'GPU'}-{size}GB"
