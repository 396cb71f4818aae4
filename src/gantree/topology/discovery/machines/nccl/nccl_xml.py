"""A machine from an NCCL or RCCL topology file. `nccl_elements` finds its GPUs and NICs.

GPUs are numbered by `dev`, which is NVML's (ROCm's) number and the order of `nvidia-smi`; where a file has no <gpu>
elements, by bus id, in which order drivers number them.

Links. An <nvlink> or <xgmi> to another GPU is a link to it. All NVSwitches of a machine are one fabric, as NCCL has
it: GPUs that have links into it reach each other with the smaller count. Some writers of files for virtual
machines could not see the far end of bridged links and wrote the GPU itself; bridges join neighbouring boards, so
GPUs that all do this are taken as neighbouring pairs, and that is noted. Pairs without a link of their own take the
class of their PCI path; a file does not distinguish the host bridges of a CPU, so below one CPU and in one PCI domain
that is PHB, as in NCCL.

NICs. `speed` is in Mb/s; some plugins wrote kb/s, seen by rates that no NIC has. `guid` of an InfiniBand or RoCE NIC
is its system image GUID with the bytes reversed (little-endian hosts); ports and functions of one card share it, so
it names a NIC only where a single one has it. Other plugins count there, or write 0.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from gantree.text.records import Report
from gantree.text.words import counted, plural
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.devices.pci_ids import gpu_model, is_gpu, is_nvswitch
from gantree.topology.discovery.machines.devices.pci_tree import path_class
from gantree.topology.discovery.machines.nccl.nccl_elements import (
    SeenGpu,
    SeenLink,
    SeenNic,
    SeenSystem,
    read_system,
)
from gantree.topology.hardware.catalog import SELF

_BRIDGES_OF_SWITCH = 1
_MOST_MBPS = 10_000_000
"""10 Tb/s. The fastest NICs have 0.8 Tb/s; ten times that is another unit."""
_LEAST_GUID = 1 << 40
"""A GUID begins with its maker's number, 24 bits; smaller values are counters."""
_ARCHITECTURES = {60: "Pascal", 61: "Pascal", 70: "Volta", 72: "Volta", 75: "Turing", 80: "Ampere", 86: "Ampere",
                  87: "Ampere", 89: "Ada", 90: "Hopper", 100: "Blackwell", 103: "Blackwell", 110: "Blackwell",
                  120: "Blackwell", 121: "Blackwell"}  # fmt: skip
"""Architectures by compute capability times ten (NVIDIA's list of CUDA GPUs)."""

Pair = tuple[int, int]


def parse(text: str, source: str) -> GpuTopology:
    """Read a file. `source` names the file in errors.

    BadInput: another document. BadFields, with lines: no XML; bus ids, numbers and masks of another form; a device or
    a port twice; several hosts in one file; more devices than a machine has.
    """
    report = Report(source)
    seen = read_system(text, report)
    gpus, order_said = _ordered(seen.gpus)
    nics = _in_order(seen.nics)
    names = _names(nics, report)
    report.check()
    links = _Links(gpus)
    rates, rates_said = _rates(nics, names)
    gpu_links = links.matrix()
    nic_links = tuple(
        tuple(path_class(gpu.place, nic.place, _BRIDGES_OF_SWITCH) for nic in nics) for gpu in gpus
    )
    said = [*order_said, *links.inferred, *rates_said, *_inferred(gpus, nics)]
    if any("PHB" in row for row in (*gpu_links, *nic_links)):
        said.append("PHB is any path through one CPU: the file does not tell host bridges apart")
    return GpuTopology(
        links=gpu_links,
        nic_links=nic_links,
        numa=tuple(gpu.place.numa for gpu in gpus),
        cpu_sets=tuple(gpu.cpus for gpu in gpus),
        nics=names,
        model_of_gpu=tuple(gpu_model(gpu.vendor, gpu.device) for gpu in gpus),
        bus_id_of_gpu=tuple(gpu.bus_id for gpu in gpus),
        GBps_of_nic=rates,
        guid_of_nic=_guids(nics),
        inferred=tuple(said),
        warnings=(*links.warnings, *_warnings(seen, gpus, names, rates)),
    )


def _ordered(gpus: Sequence[SeenGpu]) -> tuple[list[SeenGpu], list[str]]:
    """Return the GPUs in the machine's order, and what was concluded for it."""
    devs = [gpu.dev for gpu in gpus if gpu.dev is not None]
    if len(set(devs)) == len(gpus):
        ordered = sorted(gpus, key=lambda gpu: gpu.dev or 0)
        numbers = ", ".join(str(gpu.dev) for gpu in ordered)
        gaps = sorted(devs) != list(range(len(gpus)))
        return ordered, [
            f"the file has GPUs {numbers} alone; here they count from 0"
        ] if gaps else []
    ranks = [gpu.rank for gpu in gpus if gpu.rank is not None]
    if len(set(ranks)) == len(gpus):
        said = "GPUs are numbered by rank: their device numbers are missing or not distinct"
        return sorted(gpus, key=lambda gpu: gpu.rank or 0), [said]
    said = "the file does not number its GPUs; they are numbered by bus id, as drivers do"
    return sorted(gpus, key=lambda gpu: _bus_key(gpu.bus_id)), [said]


def _bus_key(bus_id: str | None) -> tuple[int, str]:
    """Order bus ids by domain first, however many digits it has; NICs without one come last."""
    return (1 << 33, "") if bus_id is None else (int(bus_id.partition(":")[0], 16), bus_id)


def _in_order(nics: Sequence[SeenNic]) -> list[SeenNic]:
    devs = {nic.dev for nic in nics}
    if None not in devs and len(devs) == len(nics):
        return sorted(nics, key=lambda nic: nic.dev or 0)
    return sorted(nics, key=lambda nic: _bus_key(nic.bus_id))


def _names(nics: Sequence[SeenNic], report: Report) -> tuple[str, ...]:
    """Return a name for each NIC: its own, with its port where several share it; its bus id where it has none."""
    plain = [nic.name or nic.bus_id or "net" for nic in nics]
    shared = {name for name, times in Counter(plain).items() if times > 1}
    names = [
        f"{name}:{nic.port}" if name in shared and nic.port is not None else name
        for name, nic in zip(plain, nics, strict=True)
    ]
    line_of: dict[str, int] = {}
    for name, nic in zip(names, nics, strict=True):
        if name in line_of:
            found = f"`{name}`, which is in line {line_of[name]} too"
            report.add(nic.line, "net name", found, "each port of a NIC once")
        line_of.setdefault(name, nic.line)
    return tuple(names)


class _Links:
    """The links between GPUs, and what was concluded and missed on the way."""

    def __init__(self, gpus: Sequence[SeenGpu]) -> None:
        self.gpus = gpus
        self.number = {gpu.bus_id: number for number, gpu in enumerate(gpus)}
        self.inferred: list[str] = []
        self.warnings: list[str] = []
        self.links_into_switches = [
            sum(link.count for link in gpu.links if self._ends_in_switch(link)) for gpu in gpus
        ]
        self.bonded = self._bonded()

    def matrix(self) -> tuple[tuple[str | None, ...], ...]:
        """Return the class of each pair."""
        count = range(len(self.gpus))
        matrix: list[list[str | None]] = [[SELF] * len(self.gpus) for _ in count]
        for a, b in combinations(count, 2):
            matrix[a][b] = matrix[b][a] = self._class(a, b)
        return tuple(map(tuple, matrix))

    def _class(self, a: int, b: int) -> str | None:
        switched = min(self.links_into_switches[a], self.links_into_switches[b])
        if (a, b) in self.bonded:
            return self.bonded[a, b]
        if switched:
            return f"NV{switched}"
        return path_class(self.gpus[a].place, self.gpus[b].place, _BRIDGES_OF_SWITCH)

    def _ends_in_switch(self, link: SeenLink) -> bool:
        return self._peer(link) is None and is_nvswitch(link.target_class)

    def _peer(self, link: SeenLink) -> int | None:
        return self.number.get(link.bus_id) if link.bus_id else None

    def _bonded(self) -> dict[Pair, str]:
        """Return the classes of pairs with links of their own."""
        counts = self._counts()
        bonded: dict[Pair, str] = {}
        for (a, b, family), there in sorted(counts.items()):
            back = counts.get((b, a, family), 0)
            if a < b or not back:
                width = min(there, back) if back else there
                bonded[min(a, b), max(a, b)] = f"{family}{width}"
                if there != back:
                    self.warnings.append(
                        f"GPU{a} tells of {plural(there, 'link')} to GPU{b}, GPU{b} of {back} to GPU{a}; "
                        f"taken as {width}"
                    )
        bonded.update(self._bridged_pairs(bonded))
        self._note_hops(bonded)
        self._note_uneven()
        return bonded

    def _counts(self) -> dict[tuple[int, int, str], int]:
        """Return how many links each GPU has to each other one by family; links with no known end are warned of."""
        counts: Counter[tuple[int, int, str]] = Counter()
        lost: Counter[int] = Counter()
        for a, gpu in enumerate(self.gpus):
            for link in gpu.links:
                b = self._peer(link)
                if b is not None and b != a:
                    counts[a, b, link.family] += link.count
                elif b is None and (
                    is_gpu(link.target_class, "") or not link.target_class
                ):  # a GPU that this file leaves out, or nothing that is known
                    lost[a] += link.count
        self.warnings += [
            f"GPU{a}: {counted(links, 'link ends', 'links end')} in GPUs that the file does not have"
            for a, links in sorted(lost.items())
        ]
        return counts

    def _bridged_pairs(self, bonded: Mapping[Pair, str]) -> dict[Pair, str]:
        """Pair neighbouring GPUs whose links all end in the GPU itself, where every GPU is such a one."""
        own = [
            sum(link.count for link in gpu.links if link.bus_id == gpu.bus_id) for gpu in self.gpus
        ]
        if not any(own):
            return {}
        self.warnings.append(
            "NVLinks of a GPU to itself: "
            + ", ".join(f"GPU{a} {links}" for a, links in enumerate(own) if links)
        )
        evenly = len(own) % 2 == 0 and not bonded and not any(self.links_into_switches)
        if not evenly or own[::2] != own[1::2] or not all(own):
            return {}
        self.inferred.append(
            "all NVLinks end in the GPU itself, so the far end is not told; taken as bridges between neighbouring "
            "GPUs (0-1, 2-3...)"
        )
        family = self.gpus[0].links[0].family
        return {(a, a + 1): f"{family}{own[a]}" for a in range(0, len(own), 2)}

    def _note_hops(self, bonded: Mapping[Pair, str]) -> None:
        """Report that traffic between GPUs without a link may go over a GPU that both have links to."""
        if any(self.links_into_switches):
            return
        peers: dict[int, set[int]] = {a: set() for a in range(len(self.gpus))}
        for a, b in bonded:
            peers[a].add(b)
            peers[b].add(a)
        over = sum(
            1
            for a, b in combinations(peers, 2)
            if b not in peers[a] and not peers[a].isdisjoint(peers[b])
        )
        if over:
            self.inferred.append(
                f"{over} pairs of GPUs have no link of their own; they are given with their PCI path, though traffic "
                "can hop over a GPU that both have links to"
            )

    def _note_uneven(self) -> None:
        """Warn of GPUs that miss links into NVSwitches that most have: such a fault breaks all-to-all traffic."""
        into = self.links_into_switches
        if any(into):
            self.warnings += [
                f"GPU{a} has {plural(links, 'link')} into NVSwitches, others have {max(into)}"
                for a, links in enumerate(into)
                if links < max(into)
            ]


def _rates(
    nics: Sequence[SeenNic], names: Sequence[str]
) -> tuple[tuple[float | None, ...], list[str]]:
    """Return GB/s of each NIC, one direction, and which were given in another unit."""
    rates: list[float | None] = []
    in_kbps = []
    for nic, name in zip(nics, names, strict=True):
        speed = nic.speed_Mbps or 0
        if speed > _MOST_MBPS and speed / 1000 <= _MOST_MBPS:
            in_kbps.append(f"{name} ({speed})")
            speed //= 1000
        rates.append(speed / 8000 if 0 < speed <= _MOST_MBPS else None)
    if not any(rates):
        return (), []
    said = "speeds that no NIC has in Mb/s, taken as kb/s: " + ", ".join(in_kbps)
    return tuple(rates), [said] if in_kbps else []


def _guids(nics: Sequence[SeenNic]) -> tuple[str | None, ...]:
    times = Counter(nic.guid for nic in nics)
    guids = tuple(
        nic.guid.to_bytes(8, "little").hex()
        if nic.guid is not None and _LEAST_GUID <= nic.guid < 1 << 64 and times[nic.guid] == 1
        else None
        for nic in nics
    )
    return guids if any(guids) else ()


def _inferred(gpus: Sequence[SeenGpu], nics: Sequence[SeenNic]) -> list[str]:
    said = []
    if any(not gpu.declared for gpu in gpus):
        said.append("GPUs are told by their PCI class: the file has no gpu elements for them")
    unknown = [gpu for gpu in gpus if gpu_model(gpu.vendor, gpu.device) is None]
    kinds = sorted({_kind(gpu) for gpu in unknown} - {""})
    if kinds:
        said.append(f"GPUs are of {', '.join(kinds)}; which model is not told")
    if any(_guids(nics)):
        said.append("NIC GUIDs are those of the cards (system image), with the bytes put in order")
    return said


def _kind(gpu: SeenGpu) -> str:
    if gpu.gcn:
        digits = gpu.gcn.removeprefix("gfx")
        return f"architecture gfx{'90a' if digits == '910' else digits}"
    return f"the {_ARCHITECTURES[gpu.sm]} architecture" if gpu.sm in _ARCHITECTURES else ""


def _warnings(
    seen: SeenSystem,
    gpus: Sequence[SeenGpu],
    names: Sequence[str],
    rates: Sequence[float | None],
) -> list[str]:
    warnings = []
    if not gpus:
        warnings.append("the file has no GPUs")
    if seen.unclassed:
        warnings.append(
            f"{seen.unclassed} PCI devices have no class and no gpu or nic element, so what they are is not told "
            "(NCCL asks the machine when it loads the file)"
        )
    if len(gpus) > 1 and not any(gpu.links for gpu in gpus):
        warnings.append(
            "the file tells of no NVLink or xGMI link (NCCL looks for them when it runs); GPUs may be joined better "
            "than by the PCI paths given"
        )
    if seen.numa_not_told and gpus:
        warnings.append("NUMA nodes are not told for all CPUs")
    warnings += [
        f"GPU{a} is shared by {gpu.ranks} ranks or parts; it counts once"
        for a, gpu in enumerate(gpus)
        if gpu.ranks > 1
    ]
    slow = [
        name for name, rate in zip(names, rates or [None] * len(names), strict=True) if not rate
    ]
    if slow and rates:
        warnings.append(f"no rate is told for {', '.join(slow)}")
    return warnings
