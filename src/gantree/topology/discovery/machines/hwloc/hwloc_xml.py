"""A machine from hwloc's XML (`lstopo --of xml`). `hwloc_objects` finds the objects.

A GPU is what a GPU library named (nvml0, rsmi0, cuda0, ze0), numbered as that library does; OpenCL names count where
no other library was asked, for it names display cards too. Several libraries name the same PCI device; the first in
that order counts. Without any name, PCI classes decide. A NIC is an RDMA device (OpenFabrics).

NVLinks are given by bandwidth in MB/s: hwloc adds 20,000 for each link of P100 and 25,000 for each later one (50,000
for Blackwell), so the count is the value over that. It gives links into NVSwitches, never those between
switches: all NVSwitches of a machine are taken as one fabric, and that is noted. xGMI is given as a bandwidth that is
no multiple of anything, or made up, so XGMI1 is "at least one".

NUMA nodes of GPU memory (GPUMemory on POWER9) and of other memory without CPUs (HBM, NVM) are no CPU's node.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from gantree.text.records import Report
from gantree.topology.discovery.gpus import CpuSet, GpuTopology
from gantree.topology.discovery.machines.devices.cpu_masks import runs_of
from gantree.topology.discovery.machines.devices.nvidia_names import model_name
from gantree.topology.discovery.machines.devices.pci_ids import (
    AMD,
    NVIDIA,
    gpu_model,
    is_gpu,
    is_nvswitch,
)
from gantree.topology.discovery.machines.devices.pci_tree import Place, path_class
from gantree.topology.discovery.machines.hwloc.hwloc_objects import (
    Matrix,
    Near,
    NumaNode,
    Objects,
    OsDevice,
    PciDevice,
    joined,
    read_objects,
    sole_bit,
)
from gantree.topology.hardware.catalog import SELF

MAX_GPUS = 512
MAX_NICS = 1024
_BRIDGES_OF_SWITCH = 2
_LIBRARIES = ("nvml", "rsmi", "cuda", "ze", "opencl")
"""Prefixes of GPU names, the first that a device has counts."""
_GPU_NAME = re.compile(r"(nvml|rsmi|cuda|ze)([0-9]{1,4})|(opencl)([0-9]{1,3})d([0-9]{1,3})")
_MEMORY_INFOS = (
    "CUDAGlobalMemorySize",
    "RSMIVRAMSize",
    "LevelZeroHBMSize",
    "OpenCLGlobalMemorySize",
)
_KIB = re.compile(r"([0-9]{1,12})(?:KiB)?")
_SIZE_IN_NAME = re.compile(r"\b([0-9]{1,3})GB\b", re.IGNORECASE)
_AMD_NAME = re.compile(r"\bMI[0-9]{2,3}[AX]?\b", re.IGNORECASE)
_GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}", re.IGNORECASE)
_MBPS_OF_NVLINK = {"P100": 20_000, "B100": 50_000, "B200": 50_000, "B300": 50_000, "GB200": 50_000,
                   "GB300": 50_000}  # fmt: skip
_MBPS_OF_OTHER_NVLINKS = 25_000
"""hwloc's own figures for a link in one direction (topology-nvml.c); Blackwell's is NVIDIA's."""


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU: its own OS device (None: given by class), all that name its PCI device, and where it is."""

    own: OsDevice | None
    names: tuple[OsDevice, ...]
    pci: PciDevice | None
    near: Near

    def info(self, *keys: str) -> str:
        """Return the first of these that any library gives, "" for none."""
        given = (device.infos.get(key, "") for key in keys for device in self.names)
        return next((value for value in given if value), "")


def parse(text: str, source: str) -> GpuTopology:
    """Read a file. `source` names the file in errors.

    BadInput: another document. BadFields, with lines: no XML; masks, numbers and matrices of another form; links that
    differ from their mirror; a GPU or NIC twice; more devices than a machine has.
    """
    report = Report(source)
    objects = read_objects(text, report)
    gpus, inferred, warnings = _gpus(objects)
    nics = [device for device in objects.os if device.fabric]
    _check_count("GPUs", len(gpus), MAX_GPUS, report)
    _check_count("NICs", len(nics), MAX_NICS, report)
    _check_names([gpu.own for gpu in gpus if gpu.own], report)
    _check_names(nics, report)
    cpu_nodes = _cpu_nodes(objects.numa)
    gpu_places = [_place(gpu.near, cpu_nodes) for gpu in gpus]
    nic_places = [_place(nic.near, cpu_nodes) for nic in nics]
    links = _Links(objects, gpus, gpu_places, report)
    report.check()
    guids = tuple(_guid(nic.infos.get("NodeGUID", "")) for nic in nics)
    memory_MiB = tuple(_memory_MiB(gpu) for gpu in gpus)
    memory_bytes = sum(node.memory_bytes for node in objects.numa if _has_cpus(node))
    return GpuTopology(
        links=links.matrix,
        nic_links=tuple(
            tuple(path_class(gpu, nic, _BRIDGES_OF_SWITCH) for nic in nic_places)
            for gpu in gpu_places
        ),
        numa=tuple(place.numa for place in gpu_places),
        one_numa_node=len(objects.numa) == 0 or sole_bit(cpu_nodes) is not None,
        cpu_sets=tuple(_cpu_set(gpu.near) for gpu in gpus),
        nics=tuple(nic.name for nic in nics),
        hostname=objects.hostname,
        model_of_gpu=tuple(map(_model, gpus)),
        memory_MiB_of_gpu=memory_MiB if any(memory_MiB) else (),
        uuid_of_gpu=tuple(gpu.info("NVIDIAUUID", "AMDUUID") or None for gpu in gpus),
        bus_id_of_gpu=tuple(gpu.pci.bus_id if gpu.pci else None for gpu in gpus),
        guid_of_nic=guids if any(guids) else (),
        cpus=float(objects.cpus.bit_count()) if objects.cpus else None,
        memory_GiB=memory_bytes / (1 << 30) if memory_bytes else None,
        inferred=(*inferred, *links.inferred),
        warnings=(*warnings, *links.warnings, *_warnings(objects, gpus, gpu_places, nics)),
    )


def _check_count(what: str, found: int, most: int, report: Report) -> None:
    """Stop at once where there is more of something than any machine has."""
    if found > most:
        report.add(None, what, str(found), f"at most {most}")
        report.check()


def _check_names(devices: Sequence[OsDevice], report: Report) -> None:
    line_of: dict[str, int] = {}
    for device in devices:
        if device.name in line_of:
            found = f"`{device.name}`, which is in line {line_of[device.name]} too"
            report.add(device.line, "OSDev name", found, "each name once")
        line_of.setdefault(device.name, device.line)


def _gpus(objects: Objects) -> tuple[list[_Gpu], list[str], list[str]]:
    """Return the GPUs in their order, what was concluded, and what was left out."""
    named: dict[PciDevice | None, list[tuple[int, int, OsDevice]]] = {}
    for device in objects.os:
        rank = _rank(device)
        if rank is not None:
            named.setdefault(device.near.pci, []).append((*rank, device))
    if not named:
        return _by_class(objects)
    best = min(rank for group in named.values() for rank, _, _ in group)
    only_opencl = _LIBRARIES[best] == "opencl"
    found: list[tuple[int, int, _Gpu]] = []
    for pci, group in named.items():
        first = min(rank for rank, _, _ in group)
        if _LIBRARIES[first] == "opencl" and not only_opencl:
            continue
        own = [(index, device) for rank, index, device in group if rank == first]
        if _LIBRARIES[first] == "opencl" and pci is not None:
            own = own[:1]  # several OpenCL platforms name the same card
        alone = len(own) == 1
        for index, device in own:
            names = tuple(each for _, _, each in group) if alone else (device,)
            found.append((first, index, _Gpu(device, names, pci, device.near)))
    gpus = [gpu for _, _, gpu in sorted(found, key=lambda entry: entry[:2])]
    return gpus, [], _left_out(objects, gpus)


def _rank(device: OsDevice) -> tuple[int, int] | None:
    """Return which library named a GPU and its number there; None for other devices."""
    match = _GPU_NAME.fullmatch(device.name)
    if match is None:
        return None
    if match[3]:
        is_card = device.infos.get("OpenCLDeviceType", "GPU") == "GPU"
        number = int(match[4]) * 1000 + int(match[5])
        return (_LIBRARIES.index("opencl"), number) if is_card else None
    return _LIBRARIES.index(match[1]), int(match[2])


def _by_class(objects: Objects) -> tuple[list[_Gpu], list[str], list[str]]:
    cards = [pci for pci in objects.pci if _may_compute(pci)]
    if not cards:
        return [], [], ["the file has no GPUs"]
    said = "no GPU library was asked; GPUs are told by their PCI class, in the order of bus ids"
    cards.sort(key=lambda pci: pci.bus_id or "")
    return [_Gpu(None, (), pci, pci.near) for pci in cards], [said], []


def _may_compute(pci: PciDevice) -> bool:
    vendor = pci.vendor.replace("0000", "")
    return is_gpu(pci.class_code, vendor) and vendor in ("", NVIDIA, AMD)


def _left_out(objects: Objects, gpus: Sequence[_Gpu]) -> list[str]:
    counted = {gpu.pci for gpu in gpus}
    cards = [
        pci.bus_id or f"line {pci.line}"
        for pci in objects.pci
        if _may_compute(pci) and pci not in counted
    ]
    return (
        [f"NVML, ROCm SMI and CUDA do not name {joined(cards)}; not counted as GPUs"]
        if cards
        else []
    )


def _cpu_nodes(nodes: Sequence[NumaNode]) -> int:
    """Return the NUMA nodes that CPUs have as their own, as bits."""
    bits = 0
    for node in nodes:
        if _has_cpus(node):
            bits |= 1 << node.os_index
    return bits


def _has_cpus(node: NumaNode) -> bool:
    return not node.of_gpu and node.subtype in ("", "DRAM")


def _place(near: Near, cpu_nodes: int) -> Place:
    """Return the place of a device; its NUMA node is known where only one of a CPU is near, or there is but one."""
    nodes = cpu_nodes if near.nodes is None else near.nodes & cpu_nodes
    return Place(near.bridges, near.root, sole_bit(nodes))


def _cpu_set(near: Near) -> CpuSet | None:
    return (runs_of(near.cpus) or None) if near.cpus else None


class _Links:
    """The classes of pairs of GPUs, and what was concluded and missed on the way."""

    def __init__(
        self, objects: Objects, gpus: Sequence[_Gpu], places: Sequence[Place], report: Report
    ) -> None:
        self.gpus = gpus
        self.report = report
        self.inferred: list[str] = []
        self.warnings: list[str] = []
        self.number = {
            ("OSDev", device.gp_index): gpu
            for gpu, each in enumerate(gpus)
            for device in each.names
            if device.gp_index
        }
        self.switches = {
            ("PCIDev", pci.gp_index)
            for pci in objects.pci
            if pci.subtype == "NVSwitch" or (is_nvswitch(pci.class_code) and pci.vendor == NVIDIA)
        }
        count = len(gpus)
        matrix: list[list[str | None]] = [
            [SELF if a == b else path_class(places[a], places[b], _BRIDGES_OF_SWITCH) for b in range(count)]
            for a in range(count)
        ]  # fmt: skip
        nvlink, xgmi = (
            objects.matrices.get("NVLinkBandwidth"),
            objects.matrices.get("XGMIBandwidth"),
        )
        bonded = self._nvlinks(nvlink) if nvlink else {}
        if xgmi:
            bonded |= self._xgmi(xgmi, objects.matrices.get("XGMIHops"))
        for (a, b), link in bonded.items():
            matrix[a][b] = matrix[b][a] = link
        self.matrix = tuple(map(tuple, matrix))
        if not nvlink and not xgmi and count > 1:
            self.warnings.append(
                "the file has no NVLink or xGMI matrix (hwloc writes one where it asked NVML or ROCm SMI and found "
                "links); GPUs may be joined better than by the PCI paths given"
            )

    def _entries(self, matrix: Matrix, name: str) -> dict[tuple[int, int], int]:
        """Return the values between GPUs a < b; mirrors that differ are reported."""
        count = len(matrix.objects)
        gpu_at = [
            (at, self.number[key]) for at, key in enumerate(matrix.objects) if key in self.number
        ]
        pairs: dict[tuple[int, int], int] = {}
        for (i, a), (j, b) in combinations(gpu_at, 2):
            there, back = matrix.values[i * count + j], matrix.values[j * count + i]
            if there != back:
                self.report.add(
                    matrix.line, name, f"{there} from GPU{a} to GPU{b}, {back} back", "one value"
                )
            if there and a != b:
                pairs[min(a, b), max(a, b)] = there
        return pairs

    def _nvlinks(self, matrix: Matrix) -> dict[tuple[int, int], str]:
        count = len(matrix.objects)
        into: dict[int, int] = {}
        for i, key in enumerate(matrix.objects):
            if key in self.number:
                into[self.number[key]] = sum(
                    matrix.values[i * count + j]
                    for j, other in enumerate(matrix.objects)
                    if other in self.switches
                )
        bonded = {}
        for a, b in combinations(sorted(into), 2):
            width = min(self._width(a, into[a]), self._width(b, into[b]))
            if width:
                bonded[a, b] = f"NV{width}"
        if bonded:
            self.inferred.append(
                "all NVSwitches are taken as one fabric: hwloc tells of no links between switches"
            )
        for (a, b), MBps in self._entries(matrix, "NVLinkBandwidth").items():
            width = self._width(a, MBps)
            if width:
                bonded[a, b] = f"NV{width}"
        return bonded

    def _width(self, gpu: int, MBps: int) -> int:
        """Return how many NVLinks a bandwidth is; where that is no whole number it is rounded down, and said."""
        model = _model(self.gpus[gpu])
        rate = _MBPS_OF_NVLINK.get((model or "").partition("-")[0], _MBPS_OF_OTHER_NVLINKS)
        if MBps and model is None:
            self._say(f"GPU models are not told; {rate} MB/s is taken as one NVLink")
        if MBps % rate:
            self._say(f"a bandwidth is no whole number of NVLinks of {rate} MB/s; rounded down")
        return min(MBps // rate, 999)

    def _say(self, sentence: str) -> None:
        if sentence not in self.inferred:
            self.inferred.append(sentence)

    def _xgmi(self, matrix: Matrix, hops_matrix: Matrix | None) -> dict[tuple[int, int], str]:
        hops = self._entries(hops_matrix, "XGMIHops") if hops_matrix else {}
        bonded = {}
        for pair in self._entries(matrix, "XGMIBandwidth"):
            if hops.get(pair, 1) > 1:
                self._say(
                    "pairs on xGMI with 2 hops or more have no link of their own; given with their PCI path"
                )
            else:
                bonded[pair] = "XGMI1"
        if bonded:
            self._say(
                "hwloc tells which GPUs xGMI joins, not by how many links, and before version 3 not whether over "
                "other GPUs; given as XGMI1"
            )
        return bonded


def _memory_MiB(gpu: _Gpu) -> int | None:
    match = _KIB.fullmatch(gpu.info(*_MEMORY_INFOS).replace(" ", ""))
    return int(match[1]) // 1024 if match else None


def _model(gpu: _Gpu) -> str | None:
    """Return the catalogue's name: from PCI ids, else from product and memory, else from a size in the product's name.

    The size in GH200's name counts the CPU's memory.
    """
    by_ids = gpu_model(gpu.pci.vendor, gpu.pci.device) if gpu.pci else None
    product = gpu.info("GPUModel")
    if by_ids or not product:
        return by_ids
    amd = _AMD_NAME.search(product)
    size = _SIZE_IN_NAME.search(product) if "GH200" not in product else None
    memory_MiB = _memory_MiB(gpu) or (int(size[1]) * 1024 if size else None)
    return model_name(amd[0].upper() if amd else product, memory_MiB) if memory_MiB else None


def _guid(written: str) -> str | None:
    digits = written.replace(":", "").lower()
    return digits if _GUID.fullmatch(written) and digits.strip("0") else None


def _warnings(
    objects: Objects, gpus: Sequence[_Gpu], places: Sequence[Place], nics: Sequence[OsDevice]
) -> list[str]:
    warnings = []
    if gpus and not nics:
        warnings.append("the file has no RDMA devices; Ethernet cards are not counted as NICs")
    if objects.numa:
        warnings += [
            f"GPU{number}: near to no NUMA node of a CPU, or to several"
            for number, place in enumerate(places)
            if place.numa is None
        ]
    if any(gpu.pci is None for gpu in gpus):
        warnings.append("the file does not tell the PCI devices of all GPUs")
    return warnings
