"""A machine from `rocm-smi --showtopo` or `amd-smi topology`. `rocm_tables` finds the tables.

What the numbers mean is in the source of rocm_smi_lib (rsmi_topo_get_link_weight, rsmi_topo_get_link_type):

* Where the driver has an xGMI path between two GPUs, the type is XGMI and hops is 1, *also* where the path goes over
  other GPUs. The weight is the driver's: 15 for each xGMI link on the path. So 15 is a link of the pair's own, and
  more goes over another GPU (NVB, the class of such paths).
* Otherwise the path goes through the CPUs: hops is 2 within a NUMA node and 3 or 4 beyond, the weight is the sum of
  the GPUs' ways to their nodes (20 each over PCIe) and of the distance between the nodes, and the type is that of
  the ways: PCIE, or XGMI where GPUs hang on the CPU's own fabric. Host bridges and switches are not given, so a
  path within a node is NODE though it may be better.
* "Numa Node" is the driver's nearest CPU node, "Numa Affinity" Linux's node of the PCI device, which is what programs
  are bound by.

How many links join a pair is not given: XGMI1 is "at least one".
"""

from collections.abc import Sequence
from itertools import combinations

from gantree.text.records import Report
from gantree.text.words import shortened
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.rocm.rocm_tables import (
    ACCESS,
    HOPS,
    TYPE,
    WEIGHT,
    Tables,
    read_tables,
)
from gantree.topology.hardware.catalog import SELF

_WEIGHT_OF_XGMI = 15
_WEIGHT_WITHIN_NODE = 40
"""Two ways of 20 between a GPU and its CPU over PCIe."""
_SELF_WORDS = frozenset({"0", "SELF", "X", "N/A", "ENABLED", "DISABLED", "TRUE", "FALSE"})
_ACCESS_WORDS = {"ENABLED": True, "TRUE": True, "DISABLED": False, "FALSE": False}
_UNKNOWN_WORDS = frozenset({"N/A", "XXXX", "UNKNOWN", "NONE", "NULL", ""})
_TYPES = frozenset({"XGMI", "PCIE"})

DIRECT = "weights are missing or 0; pairs on xGMI are taken as joined by a link of their own"
OVER_GPUS = (
    "pairs on xGMI with a weight over 15 have no link of their own and go over another GPU (NVB)"
)
OVER_CPUS = "pairs on xGMI with 2 hops or more go through the CPUs"
PARTITIONS = (
    "several GPUs share a PCIe device: they are compute partitions, counted as GPUs here; print it while all GPUs are "
    "in SPX"
)
NO_TYPES = "link types are missing; classes are told from hops and weights"


def parse(text: str, source: str) -> GpuTopology:
    """Read a print or its JSON. `source` names the file in errors.

    BadInput: there is no such table. BadFields, with lines where the print has them: cells of another form, cells
    that contradict their mirror, tables of different GPUs, tables twice.
    """
    report = Report(source)
    tables = read_tables(text, report)
    pairs = _Pairs(tables, report)
    links = pairs.links()
    peer = pairs.peers()
    report.check()
    devices = range(len(tables.names))
    return GpuTopology(
        links=links,
        nic_links=((),) * len(tables.names),
        numa=tuple(_node(tables, device) for device in devices),
        bus_id_of_gpu=tuple(tables.bus_ids.get(device) for device in devices)
        if tables.bus_ids
        else (),
        peer=peer,
        inferred=tuple(pairs.inferred),
        warnings=(*tables.warnings, *_warnings(tables, links)),
    )


class _Pairs:
    """The cells of pairs of GPUs, held against their mirrors, and what was concluded from them."""

    def __init__(self, tables: Tables, report: Report) -> None:
        self.tables = tables
        self.report = report
        self.inferred: list[str] = []
        self.numbers = {kind: self._checked(kind) for kind in (WEIGHT, HOPS)}
        self.types = self._checked(TYPE)
        self.access = self._accesses()

    def _checked(self, kind: str) -> dict[tuple[int, int], str]:
        """Return the words of pairs a < b; a word that is not of its kind, or not its mirror's, is reported."""
        pairs: dict[tuple[int, int], str] = {}
        for (a, b), (word, line) in self.tables.cells.get(kind, {}).items():
            allowed = _misfit(kind, word, on_diagonal=a == b)
            if allowed:
                self._wrong(kind, a, b, word, line, allowed)
            elif a != b and word not in _UNKNOWN_WORDS:
                pair = (min(a, b), max(a, b))
                if pairs.setdefault(pair, word) != word:
                    self._wrong(kind, a, b, word, line, f"{pairs[pair]}, as its mirror says")
        return pairs

    def _accesses(self) -> dict[tuple[int, int], bool]:
        """Return for pairs a < b whether both reach the other's memory, as far as it is given."""
        pairs: dict[tuple[int, int], bool] = {}
        for (a, b), (word, line) in self.tables.cells.get(ACCESS, {}).items():
            allowed = _misfit(ACCESS, word, on_diagonal=a == b)
            if allowed:
                self._wrong(ACCESS, a, b, word, line, allowed)
            elif a != b and word in _ACCESS_WORDS:
                pair = (min(a, b), max(a, b))
                pairs[pair] = pairs.get(pair, True) and _ACCESS_WORDS[word]
        return pairs

    def _wrong(self, kind: str, a: int, b: int, word: str, line: int, allowed: str) -> None:
        where = f"{kind}, row {self.tables.names[a]}, column {self.tables.names[b]}"
        self.report.add(line, where, f"`{shortened(word)}`", allowed)

    def links(self) -> tuple[tuple[str | None, ...], ...]:
        """Return the class of each pair."""
        count = len(self.tables.names)
        matrix: list[list[str | None]] = [[SELF] * count for _ in range(count)]
        for a, b in combinations(range(count), 2):
            matrix[a][b] = matrix[b][a] = self._class((a, b))
        return tuple(map(tuple, matrix))

    def _class(self, pair: tuple[int, int]) -> str | None:
        hops = self._number(HOPS, pair)
        weight = self._number(WEIGHT, pair)
        kind = self.types.get(pair)
        if kind is None:
            kind = _likely_type(hops, weight)
            self._say(NO_TYPES, kind is not None)
        if hops is not None and hops > 1:
            self._say(OVER_CPUS, kind == "XGMI")
            return "NODE" if hops == 2 else "SYS"
        if kind == "XGMI":
            self._say(DIRECT, not weight)
            self._say(OVER_GPUS, (weight or 0) > _WEIGHT_OF_XGMI)
            return "NVB" if (weight or 0) > _WEIGHT_OF_XGMI else "XGMI1"
        if kind == "PCIE" and weight and hops is None:
            return "NODE" if weight <= _WEIGHT_WITHIN_NODE else "SYS"
        return None

    def _number(self, kind: str, pair: tuple[int, int]) -> int | None:
        word = self.numbers[kind].get(pair)
        return int(word) if word is not None else None

    def _say(self, sentence: str, holds: bool) -> None:
        if holds and sentence not in self.inferred:
            self.inferred.append(sentence)

    def peers(self) -> tuple[tuple[bool | None, ...], ...]:
        """Return whether GPUs reach each other's memory; nothing where that was not printed."""
        if not self.access:
            return ()
        devices = range(len(self.tables.names))
        return tuple(
            tuple(True if a == b else self.access.get((min(a, b), max(a, b))) for b in devices)
            for a in devices
        )


def _misfit(kind: str, word: str, *, on_diagonal: bool) -> str:
    """Return what a cell may hold, where this word is not of it; "" where it is."""
    if on_diagonal:
        return "" if word in _SELF_WORDS else "0, X or SELF on the diagonal"
    if word in _UNKNOWN_WORDS:
        return ""
    if kind in (WEIGHT, HOPS):
        whole = word.isascii() and word.isdecimal() and len(word) <= 6
        return "" if whole else "a whole number or N/A"
    if kind == TYPE:
        return "" if word in _TYPES else "XGMI, PCIE or N/A"
    return "" if word in _ACCESS_WORDS else "ENABLED, DISABLED, True or False"


def _likely_type(hops: int | None, weight: int | None) -> str | None:
    """Return the type where no table does, as far as hops and weight leave no choice.

    Only a path on xGMI alone has one hop; a weight of 15 is one xGMI link, one of 40 two ways over PCIe.
    """
    if hops == 1 or (hops is None and weight == _WEIGHT_OF_XGMI):
        return "XGMI"
    if (hops or 0) > 1 or weight == _WEIGHT_WITHIN_NODE:
        return "PCIE"
    return None


def _node(tables: Tables, device: int) -> int | None:
    given = tables.numa.get(device, {})
    affinity = given.get("affinity")
    return affinity if affinity is not None else given.get("node")


def _warnings(tables: Tables, links: Sequence[Sequence[str | None]]) -> list[str]:
    warnings = [
        f"no table of {kind}s" if not kind.endswith("s") else f"no table of {kind}"
        for kind in (WEIGHT, HOPS, TYPE)
        if kind not in tables.cells
    ]
    unknown = sum(links[a][b] is None for a, b in combinations(range(len(links)), 2))
    if unknown:
        warnings.append(f"the paths of {unknown} pairs of GPUs are not told")
    names = [name for name in tables.names if name.startswith("GPU")]
    if names and names != [f"GPU{device}" for device in range(len(names))]:
        warnings.append(f"the print has {', '.join(names)} alone; here they count from 0")
    devices = [bus_id.rpartition(".")[0] for bus_id in tables.bus_ids.values()]
    if len(set(devices)) < len(devices):
        warnings.append(PARTITIONS)
    if not tables.numa:
        warnings.append("no NUMA nodes are told")
    for device, given in sorted(tables.numa.items()):
        if None not in given.values() and len(set(given.values())) > 1:
            warnings.append(
                f"{tables.names[device]}: Numa Node {given['node']}, Numa Affinity {given['affinity']}; "
                "the affinity is taken"
            )
    return warnings
