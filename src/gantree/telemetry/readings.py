"""Makes the topology and machine model of raw readings. Pure; `nvml.driver` and `sysfs` take the readings.

A path between a GPU and a NIC has no reading of its own; it is told from the two places in the PCI tree, in the
same classes that drivers use between GPUs: PIX behind one switch, PXB behind several, PHB over one root complex,
NODE within a NUMA node, SYS beyond.
"""

import re
import uuid
from dataclasses import dataclass
from itertools import takewhile

from gantree.model.cluster import Machine
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.machines.devices.nvidia_names import clique_name, model_name
from gantree.topology.hardware.catalog import SELF

LINK_OF_LEVEL = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's nvmlGpuTopologyLevel_t as link classes; 0 (INTERNAL) is two GPUs of one board behind its switch."""
P2P_OK, P2P_UNKNOWN = 0, 6
"""NVML's nvmlGpuP2PStatus_t: GPUs reach each other's memory, and not known; the others say what does not support it."""
FABRIC_COMPLETED = 3
"""NVML's nvmlGpuFabricState_t: the fabric manager has registered the GPU."""
BITS_PER_BYTE = 8
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec")
_HEX16 = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where a device sits: the names from its root complex down to itself, and its NUMA node, if it has one."""

    path: tuple[str, ...]
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as NVML tells. levels[other] is the common ancestor's level, None for itself or if not told.

    memory_MiB is None for a GPU without memory of its own. links_to_gpu[other] counts active NVLinks to another GPU;
    links_to_switch those to NVSwitches. p2p[other] is the worse of the statuses of reading and writing the other's
    memory, None for itself or if not told. bus_id is as sysfs writes it, clique the NVLink domain across nodes, if
    there is one.
    """

    uuid: str
    name: str
    memory_MiB: int | None
    place: PciPlace
    levels: tuple[int | None, ...]
    links_to_gpu: tuple[int, ...]
    links_to_switch: int = 0
    p2p: tuple[int | None, ...] = ()
    bus_id: str | None = None
    clique: str | None = None


@dataclass(frozen=True, slots=True)
class NicReading:
    """One RDMA device, its place, the rate of its active ports in one direction, and its GUID (16 hex digits)."""

    name: str
    place: PciPlace
    GBps: float | None = None
    guid: str | None = None


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
    return machine_from(topology_of(readings), name)


def topology_of(readings: Readings) -> GpuTopology:
    """Return what these readings tell, as parsers of files tell it."""
    gpus, nics = readings.gpus, readings.nics
    numbers = range(len(gpus))
    return GpuTopology(
        links=tuple(tuple(gpu_link(gpus, a, b) for b in numbers) for a in numbers),
        nic_links=tuple(tuple(nic_link(gpu.place, nic.place) for nic in nics) for gpu in gpus),
        numa=tuple(gpu.place.numa for gpu in gpus),
        one_numa_node=all(gpu.place.numa is None for gpu in gpus),
        cpu_sets=(None,) * len(gpus),
        nics=tuple(nic.name for nic in nics),
        hostname=readings.hostname,
        model_of_gpu=tuple(
            model_name(gpu.name, gpu.memory_MiB) if gpu.memory_MiB else None for gpu in gpus
        ),
        memory_MiB_of_gpu=tuple(gpu.memory_MiB for gpu in gpus),
        uuid_of_gpu=tuple(gpu.uuid for gpu in gpus),
        bus_id_of_gpu=tuple(gpu.bus_id for gpu in gpus),
        clique_of_gpu=tuple(gpu.clique for gpu in gpus),
        peer=tuple(tuple(_are_peers(gpus, a, b) for b in numbers) for a in numbers),
        GBps_of_nic=tuple(nic.GBps for nic in nics),
        guid_of_nic=tuple(nic.guid for nic in nics),
        cpus=float(readings.cpus),
        memory_GiB=readings.memory_GiB,
    )


def _are_peers(gpus: tuple[GpuReading, ...], a: int, b: int) -> bool | None:
    """Return whether two GPUs can access each other's memory in both directions; None if unknown."""
    if a == b:
        return True
    told = {status for x, y in ((a, b), (b, a)) for status in gpus[x].p2p[y : y + 1]}
    told -= {None, P2P_UNKNOWN}
    return told <= {P2P_OK} if told else None


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


def fabric_clique(cluster_uuid: bytes, clique_id: int, state: int, status: int) -> str | None:
    """Return the NVLink domain across nodes; None where the fabric is not set up, or ends at this node.

    cluster_uuid has 16 bytes; state and status (0 is success) are NVML's.
    """
    if state != FABRIC_COMPLETED or status != 0:
        return None
    return clique_name(str(uuid.UUID(bytes=cluster_uuid)), clique_id)


def port_GBps(rate: str) -> float | None:
    """Return GB/s of a port's rate as Linux writes it ("400 Gb/sec (4X NDR)" is 50), None for what is none."""
    match = _RATE.match(rate.strip())
    return float(match[1]) / BITS_PER_BYTE or None if match else None


def guid_of(node_guid: str, port_gid: str = "") -> str | None:
    """Return a NIC's GUID as 16 hex digits, from "b83f:d203:0043:a1b2".

    A device without one (zeros: virtual functions, EFA) has that of its port, the lower half of the port's first GID
    if that is a link-local one.
    """
    guid = node_guid.strip().lower().replace(":", "").removeprefix("0x")
    if _HEX16.fullmatch(guid) and int(guid, 16):
        return guid
    gid = port_gid.strip().lower().replace(":", "")
    half = gid.removeprefix("fe80" + "0" * 12)
    return half if half != gid and _HEX16.fullmatch(half) and int(half, 16) else None
