"""Elements of an NCCL or RCCL topology file as GPUs and NICs with positions; `nccl_xml` interprets them.

A file is what NCCL reads (NCCL_TOPO_FILE, often written by hand for a virtual machine) or what it found
(NCCL_TOPO_DUMP_FILE). <system> holds a <cpu> per NUMA node, which holds a tree of <pci>: switches (shown by their
upstream port), GPUs and NICs. A <gpu> inside a <pci> holds <nvlink> (RCCL: <xgmi>) and <c2c>, a <nic> holds a <net>
per port. Files by hand often leave out <gpu> and <net>, since NCCL adds them when it runs; then the class of the
<pci> describes it. Unknown elements are passed over with all they hold, as NCCL does.

Broadcom's PCIe switches of generation 4 and 5 show themselves as two levels though they pass everything at full
rate; NCCL takes such a pair as one switch (ncclTopoFlattenBcmSwitches), and so does this module.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lxml import etree

from gantree.model.errors import BadInput
from gantree.text.records import Report
from gantree.text.words import shortened
from gantree.text.xml_text import read_xml
from gantree.topology.discovery.gpus import CpuSet
from gantree.topology.discovery.machines.devices.cpu_masks import mask_bits, runs_of
from gantree.topology.discovery.machines.devices.nvidia_names import sysfs_bus_id
from gantree.topology.discovery.machines.devices.pci_ids import bare, is_gpu, is_nic
from gantree.topology.discovery.machines.devices.pci_tree import MAX_BRIDGES, Place
from gantree.topology.discovery.machines.input_errors.wrong_format import named_instead

MAX_GPUS = 512
MAX_NICS = 1024
MAX_CPUS = 1024
"""<cpu> elements, one per NUMA node; Linux knows at most 1,024."""
_WANTED = "give a file for NCCL_TOPO_FILE or one that NCCL_TOPO_DUMP_FILE wrote"
_WHOLE = re.compile(r"[0-9]{1,18}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_LINKS = {"nvlink": "NV", "xgmi": "XGMI"}


@dataclass(frozen=True, slots=True)
class SeenLink:
    """Links of one GPU to one target: family NV or XGMI, the target as written and as a bus id, its class code."""

    line: int
    family: str
    count: int
    target: str
    bus_id: str | None
    target_class: str


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU. declared: it has a <gpu> element; ranks counts them (several processes, or parts of one GPU)."""

    line: int
    bus_id: str
    place: Place
    cpus: CpuSet | None
    vendor: str
    device: str
    declared: bool = False
    ranks: int = 1
    dev: int | None = None
    rank: int | None = None
    sm: int | None = None
    gcn: str = ""
    links: tuple[SeenLink, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenNic:
    """One port of a NIC, or a NIC whose ports are not listed. bus_id is None for a NIC that is no PCI device."""

    line: int
    bus_id: str | None
    place: Place
    name: str | None = None
    dev: int | None = None
    port: int | None = None
    speed_Mbps: int | None = None
    guid: int | None = None


@dataclass(slots=True)
class SeenSystem:
    """All devices of a file, in the order of the file. unclassed counts PCI devices without a class."""

    gpus: list[SeenGpu] = field(default_factory=list)
    nics: list[SeenNic] = field(default_factory=list)
    unclassed: int = 0
    numa_not_told: bool = False


@dataclass(frozen=True, slots=True)
class _Bridge:
    bus_id: str
    ids: tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Cpu:
    """number counts the <cpu> elements; numa is None for -1 and where it is missing."""

    number: int
    numa: int | None
    cpus: CpuSet | None


def read_system(text: str, report: Report) -> SeenSystem:
    """Read a file. BadInput for another document; problems of elements go to the report."""
    root = read_xml(_without_comments(text), report.source)
    if root.tag != "system":
        said = (
            "it looks like an NCCL graph file (NCCL_GRAPH_FILE), which names no machine"
            if root.tag == "graphs"
            else named_instead(text)
        )
        raise BadInput(f"{report.source}: no NCCL topology; {said}; {_WANTED}")
    return _Reader(report).system(root)


def _without_comments(text: str) -> str:
    """Blank comments out, lines kept: they may hold rows of dashes, which NCCL reads over and XML forbids."""
    kept = []
    end = 0
    while (start := text.find("<!--", end)) >= 0:
        after = text.find("-->", start + 4)
        if after < 0:
            break
        kept += [text[end:start], "\n" * text.count("\n", start, after)]
        end = after + 3
    return "".join((*kept, text[end:]))


class _Reader:
    """Walks one file and collects its devices."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.seen = SeenSystem()
        self.line_of_device: dict[str, int] = {}

    def system(self, root: etree._Element) -> SeenSystem:
        """Read all CPUs of one host."""
        elements = list(root.iterchildren("cpu"))
        self._most("cpu elements", len(elements), MAX_CPUS)
        self._one_host(elements)
        for number, element in enumerate(elements):
            cpu = self._cpu(element, number)
            self._nets(element, None, Place((), None, cpu.numa))
            for child in element.iterchildren("pci"):
                self._pci(child, cpu, (), "")
                self._check_counts()
        return self.seen

    def _one_host(self, cpus: Sequence[etree._Element]) -> None:
        first: str | None = None
        for element in cpus:
            host = element.get("host_hash")
            first = first or host
            if host not in (None, first):
                self._wrong(
                    element, "host_hash", f"`{shortened(host or '')}` after `{shortened(first or '')}`",
                    "CPUs of one host", "Give the dump of a job that ran on one node, for each kind of node.",
                )  # fmt: skip
                return

    def _cpu(self, element: etree._Element, number: int) -> _Cpu:
        numa = self._number(element, "numaid")
        self.seen.numa_not_told |= numa is None
        return _Cpu(number, numa, self._cpu_set(element))

    def _cpu_set(self, element: etree._Element) -> CpuSet | None:
        written = element.get("affinity")
        if not written:
            return None
        bits = mask_bits(written)
        if bits is None:
            self._wrong(element, "affinity", f"`{shortened(written)}`", "a CPU mask (ff,ffffffff)")
            return None
        return runs_of(bits) or None

    def _check_counts(self) -> None:
        self._most("GPUs", len(self.seen.gpus), MAX_GPUS)
        self._most("NICs", len(self.seen.nics), MAX_NICS)

    def _most(self, what: str, found: int, most: int) -> None:
        """Stop at once where there is more of something than any machine has."""
        if found > most:
            self.report.add(None, what, f"more than {most}", f"at most {most}")
            self.report.check()

    def _pci(
        self, element: etree._Element, cpu: _Cpu, above: tuple[_Bridge, ...], domain: str
    ) -> None:
        if len(above) >= MAX_BRIDGES:
            self._wrong(
                element, "pci", f"{MAX_BRIDGES + 1} nested elements", f"at most {MAX_BRIDGES}"
            )
            return
        bus_id = self._bus_id(element)
        if bus_id is None:
            return
        domain = domain or bus_id.partition(":")[0]
        self._devices(element, cpu, bus_id, Place(_one_level(above), _root(cpu, domain), cpu.numa))
        ids = tuple(
            bare(element.get(name))
            for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
        )
        here = _Bridge(bus_id, (ids[0], ids[1], ids[2], ids[3]))
        for child in element.iterchildren("pci"):
            self._pci(child, cpu, (*above, here), domain)
            self._check_counts()

    def _devices(self, element: etree._Element, cpu: _Cpu, bus_id: str, place: Place) -> None:
        """Note the GPU or the NICs that a <pci> is."""
        class_code, vendor = bare(element.get("class")), bare(element.get("vendor"))
        declared = list(element.iterchildren("gpu"))
        before = len(self.seen.gpus) + len(self.seen.nics)
        if declared or is_gpu(class_code, vendor):
            self.seen.gpus.append(self._gpu(element, declared, cpu, bus_id, place))
        self._nets(element, bus_id, place)
        found = len(self.seen.gpus) + len(self.seen.nics) - before
        if not found and is_nic(class_code):
            self.seen.nics.append(SeenNic(_line(element), bus_id, place))
            found = 1
        if found:
            self._once(element, bus_id)
        elif not class_code and next(element.iterchildren("pci"), None) is None:
            self.seen.unclassed += 1

    def _once(self, element: etree._Element, bus_id: str) -> None:
        first = self.line_of_device.setdefault(bus_id, _line(element))
        if first != _line(element):
            self._wrong(
                element, "busid", f"`{bus_id}`, which is in line {first} too", "each device once"
            )

    def _gpu(
        self,
        pci: etree._Element,
        declared: Sequence[etree._Element],
        cpu: _Cpu,
        bus_id: str,
        place: Place,
    ) -> SeenGpu:
        vendor, device = bare(pci.get("vendor")), bare(pci.get("device"))
        plain = SeenGpu(_line(pci), bus_id, place, cpu.cpus, vendor, device)
        if not declared:
            return plain
        gpu = declared[0]
        return SeenGpu(
            _line(gpu), bus_id, place, cpu.cpus, vendor, device, declared=True, ranks=len(declared),
            dev=self._number(gpu, "dev"), rank=self._number(gpu, "rank"), sm=self._number(gpu, "sm"),
            gcn=gpu.get("gcn", "").strip(), links=tuple(self._links(gpu)),
        )  # fmt: skip

    def _links(self, gpu: etree._Element) -> Iterator[SeenLink]:
        for element in gpu.iterchildren(*_LINKS):
            tag = str(element.tag)
            count = self._number(element, "count")
            target = element.get("target", "").strip()
            if count is None or not target or count > 999:
                self._wrong(element, tag, "no target, or no count of at most 999 links", "both")
                continue
            if count:
                yield SeenLink(
                    _line(element), _LINKS[tag], count, shortened(target), sysfs_bus_id(target),
                    bare(element.get("tclass")),
                )  # fmt: skip

    def _nets(self, parent: etree._Element, bus_id: str | None, place: Place) -> None:
        for nic in parent.iterchildren("nic"):
            for net in nic.iterchildren("net"):
                self.seen.nics.append(self._net(net, bus_id, place))
                self._check_counts()

    def _net(self, net: etree._Element, bus_id: str | None, place: Place) -> SeenNic:
        return SeenNic(
            _line(net), bus_id, place, name=shortened(net.get("name", "").strip(), 200) or None,
            dev=self._number(net, "dev"), port=self._number(net, "port"),
            speed_Mbps=self._number(net, "speed"), guid=self._guid(net),
        )  # fmt: skip

    def _guid(self, net: etree._Element) -> int | None:
        written = net.get("guid", "").strip()
        return int(written, 16) if _HEX.fullmatch(written) else self._number(net, "guid", 20)

    def _bus_id(self, element: etree._Element) -> str | None:
        written = element.get("busid", "")
        bus_id = sysfs_bus_id(written) if len(written) < 40 else None
        if bus_id is None:
            found = f"`{shortened(written)}`" if written else "nothing"
            self._wrong(element, "busid", found, "a PCI bus id (0000:1b:00.0)")
        return bus_id

    def _number(self, element: etree._Element, name: str, digits: int = 18) -> int | None:
        """Return a whole number; None where it is missing, empty or -1 ("not known")."""
        written = element.get(name, "").strip()
        if written in ("", "-1"):
            return None
        if len(written) > digits or not written.isascii() or not written.isdecimal():
            self._wrong(element, name, f"`{shortened(written)}`", "a whole number")
            return None
        return int(written)

    def _wrong(
        self, element: etree._Element, name: str, found: str, allowed: str, hint: str = ""
    ) -> None:
        tag = str(element.tag)
        where = tag if name == tag else f"{tag} {name}"
        self.report.add(_line(element), where, found, allowed, hint)


def _line(element: etree._Element) -> int:
    return element.sourceline or 0


def _root(cpu: _Cpu, domain: str) -> str:
    """Name the root complex, as far as a file distinguishes it: devices of one CPU in one PCI domain may share one."""
    return f"{cpu.number}" if cpu.numa is None else f"{cpu.number}/{domain}"


def _one_level(above: Sequence[_Bridge]) -> tuple[str, ...]:
    """Return the names of bridges without the lower halves of Broadcom switches."""
    kept: list[str] = []
    top: _Bridge | None = None  # the bridge before, where it may be the upper half of this one
    for bridge in above:
        generation = _broadcom_generation(bridge, 1)
        if top is not None and generation and _broadcom_generation(top, 0) == generation:
            top = None
            continue
        kept.append(bridge.bus_id)
        top = bridge
    return tuple(kept)


def _broadcom_generation(bridge: _Bridge, level: int) -> int:
    """Return 4 or 5 for a level (0 upper, 1 lower) of a Broadcom switch of that generation, 0 for other bridges."""
    vendor, device, subsystem_vendor, subsystem = bridge.ids
    if (vendor, subsystem_vendor) != ("1000", "1000"):
        return 0
    block = subsystem.zfill(4)[:-3]
    if device == "c010":
        return 4 if block == "a" else 0
    return 5 if device == "c030" and block == str(level) else 0
