"""A machine as NCCL's topology file (NCCL_TOPO_FILE): <system> of <cpu>, <pci>, <gpu>, <nvlink>, <nic> and <net>.

What NCCL's reader (NVIDIA/nccl, src/graph/xml.cc and topo.cc, 2.4 to 2.30) asks for, and so what is written here:
version 1; elements and attributes with one space between, no tabs, no declaration, no entities; values of at most 254
characters; a class and a bus id for each <pci>; count, target and tclass for each <nvlink>. What it finds for itself
when it is missing is left out where a machine model does not tell it: CPU sets and makers, ports, GUIDs. Reading such
files is `discovery.machines.nccl.nccl_xml`; a file that is written here reads back as the machine it was made of, as
far as a file can tell: a PCI path that NVLink hides is concluded from the NICs that two GPUs share.

NCCL finds its GPUs in the file by bus id. On bare metal it needs no file. In a virtual machine that hides the PCI tree
it needs one with the bus ids that the guest sees: hand those in. Without them the bus ids are made up, one PCI domain
for each root complex, and the file is for tools that read such files, not for NCCL on that machine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from gantree.model.cluster import NO_LINK, Machine, Nic
from gantree.model.errors import BadInput
from gantree.text.words import plural
from gantree.topology.hardware.gpu_models import GpuModel, gpu_model
from gantree.topology.hardware.intra_node import Host
from gantree.topology.hardware.link_classes import bonded_links

BRIDGE_CLASS, NIC_CLASS, NVSWITCH_CLASS = "0x060400", "0x020000", "0x068000"
_GPU_CLASS = {"nvlink": "0x030200", "xgmi": "0x038000"}
UNSEEN_SWITCH = "fffffff:ffff:ff"
"""The target that NCCL itself writes where it does not see the NVSwitch at the end of a link."""
_SPEEDS = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe"}
_LEVELS = ("PIX", "PXB", "PHB", "NODE")
"""Classes of PCI paths, narrowest first: one switch, several, one root complex, one NUMA node."""
_MADE_UP_DOMAIN = 0xF000
"""PCI domains of switches that are made up beside devices with bus ids of their own."""
_FIRST_BUS = 0x10
_BUSES = 0xF0


@dataclass(frozen=True, slots=True)
class BusIds:
    """Bus ids as sysfs writes them ("0000:1b:00.0"), by GPU and by NIC of the machine."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]


def system_xml(machine: Machine, bus_ids: BusIds | None = None) -> str:
    """Write the topology file of a machine.

    BadInput: GPUs that are neither NVIDIA's nor AMD's, links that are not told, names that NCCL's reader cannot read,
    bus ids that are not as many as the devices.
    """
    _check(machine, bus_ids)
    return "\n".join(_Writer(machine, bus_ids).system()) + "\n"


def _check(machine: Machine, bus_ids: BusIds | None) -> None:
    model = gpu_model(machine.gpu)
    if model is not None and not model.architecture.startswith(("sm", "gfx")):
        raise BadInput(f"machine {machine.name}: NCCL and RCCL know no {model.name}")
    if machine.gpus > 1 and not machine.links:
        raise BadInput(
            f"machine {machine.name}: the links between its GPUs are not told; import its topology (gantree topo "
            f"import) and name that machine"
        )
    if bus_ids is not None and (len(bus_ids.gpus), len(bus_ids.nics)) != (
        machine.gpus,
        len(machine.nics),
    ):
        raise BadInput(
            f"machine {machine.name}: {len(bus_ids.gpus)} bus ids of GPUs and {len(bus_ids.nics)} of NICs; it has "
            f"{plural(machine.gpus, 'GPU')} and {plural(len(machine.nics), 'NIC')}"
        )
    for name in (machine.name, *(nic.name for nic in machine.nics)):
        if (
            len(name) > 254 or not name.isprintable() or set(name) & set("\"'<>&")
        ):  # its MAX_STR_LEN is 255
            raise BadInput(f"machine {machine.name}: NCCL cannot read the name {name!r}")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where devices sit together, by number of the cluster of each level: switch, upper switch, root, CPU."""

    switch: int
    upper: int
    root: int
    cpu: int


class _Tree:
    """Devices (GPUs, then NICs) put together by the classes of the paths between them, level by level."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.devices = machine.gpus + len(machine.nics)
        joined: list[tuple[int, int, str]] = [*self._of_gpus(), *self._of_nics()]
        clusters: list[list[int]] = []
        for level in range(len(_LEVELS)):
            pairs = [(a, b) for a, b, path in joined if _LEVELS.index(path) <= level]
            clusters.append(self._clusters(pairs))
        self.place = [_Place(*row) for row in zip(*clusters, strict=True)]

    def _of_gpus(self) -> Iterator[tuple[int, int, str]]:
        machine = self.machine
        for a, b in combinations(range(machine.gpus), 2):
            path = machine.links[a][b]
            same_numa = (
                machine.numa and machine.numa[a] is not None and machine.numa[a] == machine.numa[b]
            )
            if path in _LEVELS:
                yield a, b, path
            elif same_numa:
                yield a, b, "NODE"

    def _of_nics(self) -> Iterator[tuple[int, int, str]]:
        for number, nic in enumerate(self.machine.nics, start=self.machine.gpus):
            path = self._path(nic)
            for gpu in nic.near if path in _LEVELS else ():
                yield gpu, number, path

    def _path(self, nic: Nic) -> str:
        """The class of the path to the GPUs that a NIC is near to: one switch, unless they are told to share none."""
        if nic.path != NO_LINK:
            return nic.path
        told = [self.machine.links[a][b] for a, b in combinations(nic.near, 2)]
        apart = [path for path in told if path in _LEVELS]
        return max(apart, key=_LEVELS.index, default="PIX")

    def _clusters(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """The lowest device of each device's cluster."""
        lowest = list(range(self.devices))
        for a, b in pairs:
            old, new = max(lowest[a], lowest[b]), min(lowest[a], lowest[b])
            lowest = [new if of == old else of for of in lowest]
        return lowest


@dataclass(slots=True)
class _Writer:
    """A file while it is written."""

    machine: Machine
    bus_ids: BusIds | None
    tree: _Tree = field(init=False)
    made_up: dict[int, int] = field(default_factory=dict)
    own_bus: list[str] = field(init=False)
    model: GpuModel | None = field(init=False)

    def __post_init__(self) -> None:
        self.tree = _Tree(self.machine)
        self.model = gpu_model(self.machine.gpu)
        told = (*self.bus_ids.gpus, *self.bus_ids.nics) if self.bus_ids else ()
        self.own_bus = list(told) or [
            self._new_bus(self._domain(place.root), device)
            for device, place in enumerate(self.tree.place)
        ]

    def system(self) -> Iterator[str]:
        """Lines of the file."""
        yield f'<system version="1" name="{self.machine.name}">'
        for cpu, numaid in self._numa_of_cpu().items():
            yield f'  <cpu numaid="{numaid}">'
            yield from self._nested(self._on(cpu))
            yield "  </cpu>"
        yield "</system>"

    def _on(self, cpu: int) -> list[int]:
        """Devices of a CPU; those of none are on the first."""
        first = self.tree.place[0].cpu if self.tree.place else 0
        return [
            device for device, place in enumerate(self.tree.place) if self._cpu(place, first) == cpu
        ]

    def _cpu(self, place: _Place, first: int) -> int:
        alone_nic = place.cpu >= self.machine.gpus
        return first if alone_nic and self.machine.gpus else place.cpu

    def _numa_of_cpu(self) -> dict[int, int]:
        """The NUMA node of each CPU, by lowest device; numbers that nothing tells are the lowest that are free."""
        first = self.tree.place[0].cpu if self.tree.place else 0
        cpus = sorted({self._cpu(place, first) for place in self.tree.place})
        numa = self.machine.numa
        told = {cpu: numa[cpu] for cpu in cpus if numa and cpu < self.machine.gpus}
        if len(cpus) == 1 and told.get(cpus[0]) is None:
            return {cpus[0]: -1}
        free = (n for n in range(len(cpus) + len(numa)) if n not in told.values())
        return {cpu: next(free) if (known := told.get(cpu)) is None else known for cpu in cpus}

    def _nested(self, devices: Sequence[int]) -> Iterator[str]:
        """Devices below the switches that they share; an upper switch only where it holds several."""
        for upper in _groups(devices, [place.upper for place in self.tree.place]):
            below = _groups(upper, [place.switch for place in self.tree.place])
            if len(below) == 1:
                yield from self._switch(upper, "    ")
                continue
            yield self._bridge(upper[0], "    ")
            for group in below:
                yield self._bridge(group[0], "      ")
                yield from self._each(group, "        ")
                yield "      </pci>"
            yield "    </pci>"

    def _switch(self, devices: Sequence[int], indent: str) -> Iterator[str]:
        if len(devices) == 1:
            yield from self._each(devices, indent)
            return
        yield self._bridge(devices[0], indent)
        yield from self._each(devices, indent + "  ")
        yield f"{indent}</pci>"

    def _bridge(self, device: int, indent: str) -> str:
        domain = self._domain(self.tree.place[device].root)
        busid = self._new_bus(domain if self.bus_ids is None else _MADE_UP_DOMAIN + domain)
        return f'{indent}<pci busid="{busid}" class="{BRIDGE_CLASS}"{self._rate()}>'

    def _each(self, devices: Sequence[int], indent: str) -> Iterator[str]:
        for device in devices:
            yield from (
                self._gpu(device, indent)
                if device < self.machine.gpus
                else self._nic(device, indent)
            )

    def _gpu(self, gpu: int, indent: str) -> Iterator[str]:
        links = list(self._links(gpu))
        code = _GPU_CLASS["xgmi" if self._architecture().startswith("gfx") else "nvlink"]
        yield f'{indent}<pci busid="{self.own_bus[gpu]}" class="{code}"{self._rate()}>'
        closing = ">" if links else "/>"
        yield f'{indent}  <gpu dev="{gpu}"{self._capability()}{closing}'
        yield from (f"{indent}    {link}" for link in links)
        if links:
            yield f"{indent}  </gpu>"
        yield f"{indent}</pci>"

    def _links(self, gpu: int) -> Iterator[str]:
        row = self.machine.links[gpu] if self.machine.links else ()
        if Host.of(self.machine, {}).switched:
            width = max(map(bonded_links, row))
            yield f'<nvlink target="{UNSEEN_SWITCH}" count="{width}" tclass="{NVSWITCH_CLASS}"/>'
            return
        for peer, link in enumerate(row):
            if bonded_links(link):
                tag = "xgmi" if link.startswith("XGMI") else "nvlink"
                target = f'target="{self.own_bus[peer]}" count="{bonded_links(link)}"'
                yield f'<{tag} {target} tclass="{_GPU_CLASS[tag]}"/>'

    def _nic(self, device: int, indent: str) -> Iterator[str]:
        number = device - self.machine.gpus
        nic = self.machine.nics[number]
        speed = f' speed="{round(nic.bandwidth_GBps * 8000)}"' if nic.bandwidth_GBps else ""
        yield f'{indent}<pci busid="{self.own_bus[device]}" class="{NIC_CLASS}"{self._rate()}>'
        yield f"{indent}  <nic>"
        yield f'{indent}    <net name="{nic.name}" dev="{number}"{speed}/>'
        yield f"{indent}  </nic>"
        yield f"{indent}</pci>"

    def _architecture(self) -> str:
        return self.model.architecture if self.model else ""

    def _capability(self) -> str:
        architecture = self._architecture()
        if architecture.startswith("sm"):
            return f' sm="{architecture[2:]}"'
        return f' sm="{architecture[3:5]}" gcn="{architecture}"' if architecture else ""

    def _rate(self) -> str:
        """Generation and lanes; empty where not known, which NCCL takes for 16 lanes of generation 3."""
        generation = self.model.pcie_generation if self.model else None
        if generation is None or self.model is None:
            return ' link_speed="" link_width=""'
        return f' link_speed="{_SPEEDS[generation]}" link_width="{self.model.pcie_lanes or 16}"'

    def _domain(self, root: int) -> int:
        roots = sorted({place.root for place in self.tree.place})
        return roots.index(root)

    def _new_bus(self, domain: int, device: int = 0) -> str:
        """The next bus id of a domain."""
        number = self.made_up.get(domain, 0)
        self.made_up[domain] = number + 1
        assert number < _BUSES * 32, f"{device} devices behind one root complex"
        return f"{domain:04x}:{_FIRST_BUS + number % _BUSES:02x}:{number // _BUSES:02x}.0"


def _groups(devices: Sequence[int], cluster: Sequence[int]) -> list[list[int]]:
    """Devices by their cluster, lowest first."""
    found: dict[int, list[int]] = {}
    for device in devices:
        found.setdefault(cluster[device], []).append(device)
    return list(found.values())
