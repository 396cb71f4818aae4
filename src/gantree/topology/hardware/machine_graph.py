"""The devices of one machine as a graph: GPUs, NICs, PCIe switches, CPUs and NVSwitches, and their links.

One drawing serves all nodes of a machine model; `topology.graph.graph` stamps it onto each node. What stands where is
told by link classes and by the domains inside a node, which the caller hands in: a PCIe switch stands where two devices
share one, a CPU stands for a NUMA node (one for all GPUs of which none is told), an NVSwitch where GPUs have more
NVLinks towards each other than they have ports. GPUs with fewer are wired to each other, pair by pair.

A NIC hangs on the switch of the GPUs it is near to, if its path says so (PIX, PXB) or nothing is known of its path and
these GPUs share one; else on their CPU. One that is near to no GPU hangs on the first CPU. Whatever is not told but
concluded has `inferred`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from gantree.model.cluster import NO_LINK, Machine, Nic
from gantree.topology.hardware.catalog import bonded_links, link_GBps, weakness
from gantree.topology.hardware.constants import NVLINK_RING_US, PCI_RING_US
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.masks import gpus_of

InnerDomains = Callable[[Machine, str], tuple[int, ...]]
"""Domains of a tier inside a machine ("nvlink", "socket", "pcie") as masks of GPUs, by lowest GPU."""

MOST_NVLINKS_OF_A_GPU = 18
"""Ports of a Hopper or Blackwell GPU, taken for a GPU model that is not known. Who seems to use more than it has goes
through a switch."""

NVLINK_PORT_US = NVLINK_RING_US[-1] / 2
PCIE_PORT_US = PCI_RING_US[-1] / 2
"""Half of a step from GPU to GPU as NCCL counts it (ring, Simple protocol): the port of each device has one half,
switches and CPUs on the way none."""

_SWITCHED = ("PIX", "PXB")


@dataclass(frozen=True, slots=True)
class Device:
    """A vertex of a machine: its kind (gpu, nic, pcie, cpu, nvswitch) and number among these; a NIC's name."""

    kind: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Wire:
    """What joins two devices, by their positions in `MachineGraph.devices`; latency_us is that of this wire alone."""

    a: int
    b: int
    kind: str
    link: str
    bandwidth_GBps: float
    latency_us: float
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class MachineGraph:
    """All devices and wires of a machine. GPUs come first, so that GPU g is device g; then come NICs, then CPUs.

    nvlink_GBps_of_gpu is what each GPU has towards an NVSwitch above the node, 0 without NVLink. gpus_of_cpu counts
    the GPUs of each CPU.
    """

    devices: tuple[Device, ...]
    wires: tuple[Wire, ...]
    nvlink_GBps_of_gpu: tuple[float, ...]
    gpus_of_cpu: tuple[int, ...]


def draw_inside(
    machine: Machine, inner_domains: InnerDomains, nvswitch_above: bool
) -> MachineGraph:
    """Return a machine's devices and wires. nvswitch_above: its NVLinks lead to switches outside the node."""
    return _Drawing(machine, inner_domains).finished(nvswitch_above)


def pair_link(machine: Machine, a: int, b: int) -> str:
    """Return the class of the path between two GPUs, the weaker one where the two directions differ."""
    if not machine.links:
        return NO_LINK
    told = [link for link in (machine.links[a][b], machine.links[b][a]) if link != NO_LINK]
    return max(told, key=weakness, default=NO_LINK)


class _Drawing:
    """A machine while it is drawn."""

    def __init__(self, machine: Machine, inner_domains: InnerDomains) -> None:
        self.machine = machine
        self.devices = [Device("gpu", gpu, str(gpu)) for gpu in range(machine.gpus)]
        self.wires: list[Wire] = []
        self.nvlink_domains = inner_domains(machine, "nvlink")
        self.switches = inner_domains(machine, "pcie")
        self.sockets = inner_domains(machine, "socket") or (0,)
        self.nics = [self._add("nic", n, nic.name) for n, nic in enumerate(machine.nics)]
        self.cpus = [self._add("cpu", n, self._name_of_cpu(n)) for n in range(len(self.sockets))]

    def finished(self, nvswitch_above: bool) -> MachineGraph:
        self._wire_cpus()
        for number, gpus in enumerate(self.switches):
            self._wire_switch(number, gpus)
        for number, nic in enumerate(self.machine.nics):
            self._wire_lone_nic(number, nic)
        for number, gpus in enumerate(self.nvlink_domains):
            if not nvswitch_above or not self._switched(gpus):
                self._wire_nvlinks(number, gpus)
        return MachineGraph(
            tuple(self.devices),
            tuple(self.wires),
            tuple(self._nvlink_GBps(gpu) for gpu in range(self.machine.gpus)),
            tuple(gpus.bit_count() for gpus in self.sockets),
        )

    def _add(self, kind: str, index: int, name: str) -> int:
        self.devices.append(Device(kind, index, name))
        return len(self.devices) - 1

    def _name_of_cpu(self, socket: int) -> str:
        gpu = next(iter(gpus_of(self.sockets[socket])), None)
        numa = self.machine.numa[gpu] if self.machine.numa and gpu is not None else None
        return str(socket if numa is None else numa)

    def _GBps(self, link: str) -> float:
        return link_GBps(link, self.machine.gpu)

    def _cpu_of(self, gpu: int) -> int:
        return next(
            cpu for cpu, gpus in zip(self.cpus, self.sockets, strict=True) if gpus >> gpu & 1
        )

    def _wire_cpus(self) -> None:
        for a, b in combinations(self.cpus, 2):
            self.wires.append(Wire(a, b, "cpu", "SYS", self._GBps("SYS"), 0.0))

    def _wire_switch(self, number: int, gpus: int) -> None:
        """Join GPUs that share a PCIe switch, and their NICs, by it to their CPU; a lone GPU straight to its CPU."""
        behind = [nic for nic in range(len(self.nics)) if self._behind(nic, gpus)]
        members = gpus_of(gpus)
        cpu = self._cpu_of(members[0])
        if len(members) + len(behind) < 2:
            self._plug(members[0], cpu, "PHB")
            return
        switch = self._add("pcie", number, str(number))
        inferred = not self._switch_is_told(members)
        for gpu in members:
            self._plug(gpu, switch, "PIX", inferred)
        for nic in behind:
            told = self.machine.nics[nic].path in _SWITCHED
            self._plug(self.nics[nic], switch, "PIX", not told)
        self.wires.append(Wire(switch, cpu, "pcie", "PHB", self._GBps("PHB"), 0.0))

    def _plug(self, device: int, into: int, link: str, inferred: bool = False) -> None:
        """Join a GPU or NIC to a switch or CPU."""
        bandwidth_GBps = self._GBps(link)
        self.wires.append(Wire(device, into, "pcie", link, bandwidth_GBps, PCIE_PORT_US, inferred))

    def _behind(self, nic: int, gpus: int) -> bool:
        """Tell whether a NIC hangs on the PCIe switch of these GPUs."""
        card = self.machine.nics[nic]
        near = sum(1 << gpu for gpu in set(card.near))
        return bool(near) and near & ~gpus == 0 and card.path in {*_SWITCHED, NO_LINK}

    def _switch_is_told(self, gpus: tuple[int, ...]) -> bool:
        nics = [nic for nic in self.machine.nics if set(nic.near) & set(gpus)]
        links = {pair_link(self.machine, a, b) for a, b in combinations(gpus, 2)}
        return bool(links & set(_SWITCHED)) or any(nic.path in _SWITCHED for nic in nics)

    def _wire_lone_nic(self, number: int, nic: Nic) -> None:
        """Join a NIC that is behind no switch to the CPU of its GPUs, or to the first."""
        if any(self._behind(number, gpus) for gpus in self.switches):
            return
        cpus = sorted({self._cpu_of(gpu) for gpu in nic.near}) or self.cpus[:1]
        sure = len(self.cpus) == 1 or (len(cpus) == 1 and bool(nic.near))
        link = nic.path if nic.path in {"PHB", "NODE"} else "PHB"
        self._plug(self.nics[number], cpus[0], link, not sure)

    def _switched(self, gpus: int) -> bool:
        """Tell whether more NVLinks lead from a GPU to its peers than it has ports."""
        members = gpus_of(gpus)
        model = gpu_model(self.machine.gpu)
        ports = (model and model.links) or MOST_NVLINKS_OF_A_GPU
        return sum(self._nvlinks(members[0], peer) for peer in members[1:]) > ports

    def _nvlinks(self, a: int, b: int) -> int:
        link = pair_link(self.machine, a, b)
        return bonded_links(link) if link.startswith("NV") else 0

    def _wire_nvlinks(self, number: int, gpus: int) -> None:
        members = gpus_of(gpus)
        if self._switched(gpus):
            switch = self._add("nvswitch", number, str(number))
            for gpu in members:
                link = self._best_link(gpu)
                self.wires.append(
                    Wire(gpu, switch, "nvlink", link, self._GBps(link), NVLINK_PORT_US)
                )
            return
        for a, b in combinations(members, 2):
            link = pair_link(self.machine, a, b)
            if bonded_links(link):
                kind = "nvlink" if link.startswith("NV") else "xgmi"
                self.wires.append(Wire(a, b, kind, link, self._GBps(link), 2 * NVLINK_PORT_US))

    def _best_link(self, gpu: int) -> str:
        links = self._links_of(gpu)
        return min(links, key=weakness, default=NO_LINK)

    def _links_of(self, gpu: int) -> Iterator[str]:
        return (pair_link(self.machine, gpu, b) for b in range(self.machine.gpus) if b != gpu)

    def _nvlink_GBps(self, gpu: int) -> float:
        link = self._best_link(gpu)
        return self._GBps(link) if link.startswith("NV") and bonded_links(link) else 0.0
