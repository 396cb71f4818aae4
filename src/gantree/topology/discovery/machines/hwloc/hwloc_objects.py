"""Objects of an hwloc XML file that describe GPUs: PCI devices, OS devices, NUMA nodes, matrices.

A file is a tree of <object>: machine, packages, caches and cores with sets of CPUs ("cpuset") and of NUMA nodes
("nodeset"); I/O hangs below the narrowest of them that it is near to: a host bridge, PCI bridges (one for each
port of a switch), PCI devices, and the names that drivers gave them (OS devices: nvml0, cuda0, rsmi0, mlx5_0). NUMA
nodes are children beside the CPUs (version 2 on) or levels of the tree (version 1). Matrices between objects follow
the tree. Version 3 writes the kinds of an OS device as bits, earlier ones as a number.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lxml import etree

from gantree.model.errors import BadInput
from gantree.text.records import Report
from gantree.text.words import shortened
from gantree.text.xml_text import read_xml
from gantree.topology.discovery.machines.devices.cpu_masks import mask_bits
from gantree.topology.discovery.machines.devices.nvidia_names import sysfs_bus_id
from gantree.topology.discovery.machines.devices.pci_tree import MAX_BRIDGES
from gantree.topology.discovery.machines.input_errors.wrong_format import named_instead

MAX_OBJECTS_OF_A_MATRIX = 1024
_WANTED = "give what `lstopo --of xml` wrote"
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE)
_NUMA_TYPES = frozenset({"NUMANode", "Node"})
_OPENFABRICS_NUMBER, _OPENFABRICS_BIT = 3, 32
_CHUNK_TAGS = ("indexes", "u64values")


@dataclass(frozen=True, slots=True)
class Near:
    """The place of an object: CPUs and NUMA nodes as bits (None: not given), its host bridge, bridges, PCI device."""

    cpus: int | None = None
    nodes: int | None = None
    root: str | None = None
    bridges: tuple[str, ...] = ()
    pci: "PciDevice | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class PciDevice:
    """A PCI device; ids are hexadecimal without prefix, "" where the file does not give."""

    line: int
    gp_index: str
    bus_id: str | None
    class_code: str
    vendor: str
    device: str
    subtype: str
    near: Near


@dataclass(frozen=True, slots=True, eq=False)
class OsDevice:
    """What a driver calls a device, and what it gives for it. fabric: it is an RDMA device."""

    line: int
    gp_index: str
    name: str
    fabric: bool
    infos: dict[str, str]
    near: Near


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node. of_gpu: its memory is a GPU's; subtype names other memory than the CPUs' own ("HBM")."""

    os_index: int
    subtype: str
    of_gpu: bool
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Values between objects, as (type, gp_index): values[i * len(objects) + j] from i to j."""

    line: int
    objects: tuple[tuple[str, str], ...]
    values: tuple[int, ...]


@dataclass(slots=True)
class Objects:
    """All of one file, in the order of the tree. cpus are those of the machine, as bits."""

    hostname: str | None = None
    cpus: int | None = None
    pci: list[PciDevice] = field(default_factory=list)
    os: list[OsDevice] = field(default_factory=list)
    numa: list[NumaNode] = field(default_factory=list)
    matrices: dict[str, Matrix] = field(default_factory=dict)


def read_objects(text: str, report: Report) -> Objects:
    """Read a file. BadInput for another document; problems of elements go to the report."""
    root = read_xml(text, report.source)
    if root.tag != "topology" or next(root.iterchildren("object"), None) is None:
        raise BadInput(f"{report.source}: no hwloc topology; {named_instead(text)}; {_WANTED}")
    reader = _Reader(report, by_bits=_major(root.get("version", "1")) >= 3)
    reader.walk(root)
    reader.matrices(root)
    found = reader.found
    found.hostname = found.hostname or _infos(root).get("HostName")
    return found


def _major(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if re.fullmatch("[0-9]{1,3}", digits) else 1


class _Reader:
    """Walks the tree without recursion and collects what hangs in it."""

    def __init__(self, report: Report, *, by_bits: bool) -> None:
        self.report = report
        self.by_bits = by_bits
        self.found = Objects()

    def walk(self, root: etree._Element) -> None:
        """Visit all objects, parents before children, in order."""
        waiting = [(element, Near()) for element in reversed(list(root.iterchildren("object")))]
        while waiting:
            element, above = waiting.pop()
            near = self._visit(element, above)
            children = list(element.iterchildren("object"))
            waiting.extend((child, near) for child in reversed(children))

    def _visit(self, element: etree._Element, above: Near) -> Near:
        """Note an object; return what its children are near to."""
        kind = element.get("type", "")
        if kind == "Bridge":
            return self._bridge(element, above)
        if kind == "PCIDev":
            return self._pci(element, above)
        if kind == "OSDev":
            self._os(element, above)
            return above
        if kind in _NUMA_TYPES:
            self._numa(element)
        if kind in ("Machine", "System") and self.found.cpus is None:
            self.found.cpus = self._mask(element, "cpuset")
            self.found.hostname = _infos(element).get("HostName")
        return self._with_sets(element, above)

    def _with_sets(self, element: etree._Element, above: Near) -> Near:
        cpus, nodes = self._mask(element, "cpuset"), self._mask(element, "nodeset")
        if cpus is None and nodes is None:
            return above
        return Near(above.cpus if cpus is None else cpus, above.nodes if nodes is None else nodes)

    def _bridge(self, element: etree._Element, above: Near) -> Near:
        line = element.sourceline or 0
        if element.get("bridge_type", "").startswith("0-"):
            name = element.get("gp_index") or element.get("bridge_pci") or str(line)
            return Near(above.cpus, above.nodes, name)
        if len(above.bridges) >= MAX_BRIDGES:
            self.report.add(
                line, "Bridge", f"{MAX_BRIDGES + 1} nested bridges", f"at most {MAX_BRIDGES}"
            )
            return above
        name = sysfs_bus_id(element.get("pci_busid", "")[:40]) or str(line)
        return Near(above.cpus, above.nodes, above.root, (*above.bridges, name))

    def _pci(self, element: etree._Element, above: Near) -> Near:
        line = element.sourceline or 0
        written = element.get("pci_busid", "")
        bus_id = sysfs_bus_id(written[:40])
        if bus_id is None and written:
            self.report.add(
                line, "PCIDev pci_busid", f"`{shortened(written)}`", "a PCI bus id (0000:1b:00.0)"
            )
        ids = _PCI_TYPE.match(element.get("pci_type", ""))
        device = PciDevice(
            line, element.get("gp_index", ""), bus_id,
            *((ids[1].lower(), ids[2].lower(), ids[3].lower()) if ids else ("", "", "")),
            element.get("subtype", ""), above,
        )  # fmt: skip
        self.found.pci.append(device)
        return Near(above.cpus, above.nodes, above.root, above.bridges, device)

    def _os(self, element: etree._Element, above: Near) -> None:
        written = element.get("osdev_type", "")
        number = int(written) if re.fullmatch("[0-9]{1,6}", written) else 0
        fabric = bool(number & _OPENFABRICS_BIT) if self.by_bits else number == _OPENFABRICS_NUMBER
        name = shortened(element.get("name", "").strip(), 200)
        self.found.os.append(
            OsDevice(
                element.sourceline or 0, element.get("gp_index", ""), name, fabric, _infos(element), above
            )
        )  # fmt: skip

    def _numa(self, element: etree._Element) -> None:
        line, written = element.sourceline or 0, element.get("os_index", "")
        if not re.fullmatch("[0-9]{1,5}", written):
            self.report.add(line, "NUMANode os_index", f"`{shortened(written)}`", "a whole number")
            return
        memory = element.get("local_memory", "0")
        of_gpu = element.get("subtype") == "GPUMemory" or "PCIBusID" in _infos(element)
        self.found.numa.append(
            NumaNode(
                int(written), element.get("subtype", ""), of_gpu,
                int(memory) if re.fullmatch("[0-9]{1,18}", memory) else 0,
            )
        )  # fmt: skip

    def _mask(self, element: etree._Element, name: str) -> int | None:
        written = element.get(name)
        if not written:
            return None
        bits = mask_bits(written)
        if bits is None:
            self.report.add(
                element.sourceline or 0,
                f"{element.get('type', 'object')} {name}",
                f"`{shortened(written)}`",
                "a mask (0x000000ff,,0x0)",
            )
        return bits

    def matrices(self, root: etree._Element) -> None:
        """Note the matrices that have a name, the first of each."""
        for element in root.iterchildren("distances2", "distances2hetero"):
            name = element.get("name", "")
            if name and name not in self.found.matrices:
                matrix = self._matrix(element)
                if matrix:
                    self.found.matrices[name] = matrix

    def _matrix(self, element: etree._Element) -> Matrix | None:
        line, kind = element.sourceline or 0, element.get("type", "")
        where = f"{element.tag!s} {shortened(element.get('name', ''))}"
        words = {
            tag: [word for part in element.iterchildren(tag) for word in (part.text or "").split()]
            for tag in _CHUNK_TAGS
        }
        objects = tuple(_object_of(word, kind) for word in words["indexes"])
        count = len(objects)
        if count > MAX_OBJECTS_OF_A_MATRIX:
            self.report.add(line, where, f"{count} objects", f"at most {MAX_OBJECTS_OF_A_MATRIX}")
            return None
        values = words["u64values"]
        if len(values) != count * count or element.get("nbobjs", str(count)) != str(count):
            found = f"{len(values)} values for {count} objects"
            self.report.add(line, where, found, "as many objects as nbobjs says, a value per pair")
            return None
        wrong = next((word for word in values if not re.fullmatch("[0-9]{1,20}", word)), None)
        if wrong is not None:
            self.report.add(line, where, f"`{shortened(wrong)}`", "whole numbers")
            return None
        return Matrix(line, objects, tuple(map(int, values)))


def _object_of(word: str, kind: str) -> tuple[str, str]:
    """Return type and index: "OSDev:802" in a matrix of mixed types, "802" in one of a single type."""
    own_kind, colon, index = word.partition(":")
    return (own_kind, index) if colon else (kind, word)


def _infos(element: etree._Element) -> dict[str, str]:
    return {
        info.get("name", ""): shortened(info.get("value", ""), 200)
        for info in element.iterchildren("info")
    }


def sole_bit(bits: int) -> int | None:
    """Return the number of the only bit that is set; None where there is none, or several."""
    return bits.bit_length() - 1 if bits and not bits & (bits - 1) else None


def joined(names: Sequence[str]) -> str:
    """Return names for a sentence, shortened where there are many."""
    return shortened(", ".join(names), 200)
