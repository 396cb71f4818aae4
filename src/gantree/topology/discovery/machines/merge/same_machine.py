"""Merges several readings of one machine: each adds what the others lack.

A field that two readings give differently is refused, with both sources, the GPU and the field, but for these. Tools
draw the line between one and several PCIe switches (PIX, PXB), and between one and several host bridges of a NUMA node
(PHB, NODE), in different places: the first reading counts. GPUs that NVLinks join have a PCI path too, and so have
those joined over another GPU's NVLinks (NVB); files written by hand for NCCL leave NVLinks out. So NVLinks count, with
a warning. CPU sets are numbered by threads or by cores, and in containers they are what is allowed: the first counts,
and only another grouping of the GPUs is warned of. CPUs and memory of the host are what a system shows: the first
counts, with a warning. "One NUMA node" (N/A) gives way to numbers.

Which GPU is which is `device_matching`; how many NVLinks are up is checked against the links by `nvlink_check`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeVar

from gantree.model.errors import BadInput
from gantree.topology.discovery.gpus import CpuSet, GpuTopology
from gantree.topology.discovery.machines.merge.device_matching import (
    Nics,
    Part,
    numbered_gpus,
    numbered_nics,
)
from gantree.topology.discovery.machines.merge.nvlink_check import nvlink_warnings
from gantree.topology.discovery.machines.nvidia.nvlink_status import NvlinkStatus
from gantree.topology.hardware.catalog import SELF, bonded_links

_T = TypeVar("_T")
_KIND_OF_PATH = {"PIX": "switch", "PXB": "switch", "PHB": "node", "NODE": "node", "SYS": "sockets"}
_OVER_A_GPU = "NVB"
_RATE_TOLERANCE = 0.01
_MEMORY_TOLERANCE = 0.05
"""How far apart two readings of a GPU's memory may be: some count what firmware keeps for itself."""

Reported = tuple[str, _T]
"""A source and what it gives."""


def joined(readings: Sequence[tuple[str, GpuTopology | NvlinkStatus]]) -> GpuTopology:
    """Put readings of one machine together; the numbers of GPUs are nvidia-smi's.

    readings are (source, what it gives); where two may differ, the first counts. BadInput: readings that contradict
    each other, or none of a machine.
    """
    machines = [(source, values) for source, values in readings if isinstance(values, GpuTopology)]
    statuses = [(source, values) for source, values in readings if isinstance(values, NvlinkStatus)]
    if not machines:
        raise BadInput("counts of NVLinks alone make no machine; add `nvidia-smi topo -m`")
    if len(readings) == 1:
        return machines[0][1]
    inferred: list[str] = []
    warnings: list[str] = []
    parts, nics = numbered_nics(numbered_gpus(machines, inferred), inferred, warnings)
    found = _fields(parts, nics, warnings)
    for source, values in readings:
        inferred += [f"{source}: {text}" for text in values.inferred]
        warnings += [f"{source}: {text}" for text in values.warnings]
    for source, status in statuses:
        warnings += nvlink_warnings(source, status, found)
    return replace(found, inferred=tuple(inferred), warnings=tuple(warnings))


def _fields(parts: Sequence[Part], nics: Nics, warnings: list[str]) -> GpuTopology:
    gpus = max((number + 1 for part in parts for number in part.number_of_gpu), default=0)
    numa = _of_gpus(parts, gpus, "numa", lambda topology: topology.numa)
    one_numa_node = any(part.topology.one_numa_node for part in parts)
    if one_numa_node and len(set(numa) - {None}) > 1:
        warnings.append("one source says that there is but one NUMA node, others number several")
    return GpuTopology(
        links=_links(parts, gpus, warnings),
        nic_links=_nic_links(parts, gpus, nics),
        numa=numa,
        one_numa_node=one_numa_node and not any(node is not None for node in numa),
        cpu_sets=_cpu_sets(parts, gpus, warnings),
        nics=tuple(nics.names),
        device_of_nic={
            name: device
            for name, device in zip(nics.names, nics.devices, strict=True)
            if name != device
        },
        hostname=_hostname(parts),
        model_of_gpu=_agreed_of_gpus(parts, gpus, "model", lambda t: t.model_of_gpu),
        memory_MiB_of_gpu=_agreed_of_gpus(
            parts, gpus, "memory_MiB", lambda t: t.memory_MiB_of_gpu, _is_same_memory
        ),
        uuid_of_gpu=_agreed_of_gpus(parts, gpus, "uuid", lambda t: t.uuid_of_gpu),
        bus_id_of_gpu=_agreed_of_gpus(parts, gpus, "bus_id", lambda t: t.bus_id_of_gpu),
        clique_of_gpu=_agreed_of_gpus(parts, gpus, "clique", lambda t: t.clique_of_gpu),
        peer=_peer(parts, gpus),
        GBps_of_nic=_of_nics(parts, nics, "rate in GB/s", lambda t: t.GBps_of_nic, _is_same_rate),
        guid_of_nic=_of_nics(parts, nics, "guid", lambda t: t.guid_of_nic, _is_equal),
        cpus=_first(parts, "cpus", lambda t: t.cpus, warnings),
        memory_GiB=_first(parts, "memory_GiB", lambda t: t.memory_GiB, warnings),
    )


def _agreed(
    values: Iterable[Reported[_T]], where: str, is_same: Callable[[Any, Any], bool]
) -> _T | None:
    """Return what the first source gives, None where none does. BadInput where another one differs."""
    first: Reported[_T] | None = None
    for source, value in values:
        if first is None:
            first = source, value
        elif not is_same(first[1], value):
            raise BadInput(
                f"{first[0]} and {source} contradict each other: {where}: {first[1]} and {value}; "
                "give readings of one machine at one time, or leave one out"
            )
    return None if first is None else first[1]


def _is_equal(a: object, b: object) -> bool:
    return a == b


def _is_same_memory(a: int, b: int) -> bool:
    return abs(a - b) <= _MEMORY_TOLERANCE * max(a, b)


def _is_same_rate(a: float, b: float) -> bool:
    return abs(a - b) <= _RATE_TOLERANCE * max(a, b)


def _is_same_link(a: str, b: str) -> bool:
    """Return whether two classes may be of one path, as different tools draw their lines."""
    if a == b or (_OVER_A_GPU in (a, b) and not (bonded_links(a) or bonded_links(b))):
        return True
    return _KIND_OF_PATH.get(a, a) == _KIND_OF_PATH.get(b, b)


def _of_gpus(
    parts: Sequence[Part],
    gpus: int,
    field: str,
    values_of: Callable[[GpuTopology], Sequence[_T | None]],
    is_same: Callable[[Any, Any], bool] = _is_equal,
) -> tuple[_T | None, ...]:
    """Return a field by GPU."""
    values: list[list[Reported[_T]]] = [[] for _ in range(gpus)]
    for part in parts:
        for number, value in zip(part.number_of_gpu, values_of(part.topology), strict=False):
            if value is not None:
                values[number].append((part.source, value))
    return tuple(_agreed(values[n], f"GPU{n}, {field}", is_same) for n in range(gpus))


def _agreed_of_gpus(
    parts: Sequence[Part],
    gpus: int,
    field: str,
    values_of: Callable[[GpuTopology], Sequence[_T | None]],
    is_same: Callable[[Any, Any], bool] = _is_equal,
) -> tuple[_T | None, ...]:
    """Return a field by GPU, nothing where no source gives it."""
    if not any(values_of(part.topology) for part in parts):
        return ()
    return _of_gpus(parts, gpus, field, values_of, is_same)


def _pairs(
    parts: Sequence[Part],
    gpus: int,
    values_of: Callable[[GpuTopology], Sequence[Sequence[_T | None]]],
) -> Iterator[tuple[int, int, list[Reported[_T]]]]:
    """Yield each pair of GPUs with what the sources give for it, one way or the other."""
    tables = [
        (part.source, part.gpu_of_number(), values_of(part.topology))
        for part in parts
        if values_of(part.topology)
    ]
    for a, b in combinations(range(gpus), 2):
        values: list[Reported[_T]] = []
        for source, gpu_of, table in tables:
            x, y = gpu_of.get(a), gpu_of.get(b)
            if x is not None and y is not None:
                value = table[x][y] if table[x][y] is not None else table[y][x]
                values += [] if value is None else [(source, value)]
        yield a, b, values


def _links(
    parts: Sequence[Part], gpus: int, warnings: list[str]
) -> tuple[tuple[str | None, ...], ...]:
    links: list[list[str | None]] = [[None] * gpus for _ in range(gpus)]
    for gpu in range(gpus):
        links[gpu][gpu] = SELF
    beside: Counter[tuple[str, str]] = Counter()
    for a, b, values in _pairs(parts, gpus, lambda topology: topology.links):
        bonded = [(source, link) for source, link in values if bonded_links(link)]
        paths = [(source, link) for source, link in values if link in _KIND_OF_PATH]
        if bonded and paths:
            beside[bonded[0][0], paths[0][0]] += 1
        counted = [one for one in values if not bonded or one not in paths]
        links[a][b] = links[b][a] = _agreed(counted, f"link of GPU{a} and GPU{b}", _is_same_link)
    warnings += [
        f"{bonded_by} tells NVLinks of {pairs} pairs of GPUs for which {path_by} tells the PCI path only: they count"
        for (bonded_by, path_by), pairs in beside.items()
    ]
    return tuple(map(tuple, links))


def _peer(parts: Sequence[Part], gpus: int) -> tuple[tuple[bool | None, ...], ...]:
    if not any(part.topology.peer for part in parts):
        return ()
    peer: list[list[bool | None]] = [[None] * gpus for _ in range(gpus)]
    for gpu in range(gpus):
        peer[gpu][gpu] = True
    for a, b, values in _pairs(parts, gpus, lambda topology: topology.peer):
        peer[a][b] = peer[b][a] = _agreed(values, f"peer of GPU{a} and GPU{b}", _is_equal)
    return tuple(map(tuple, peer))


def _nic_links(parts: Sequence[Part], gpus: int, nics: Nics) -> tuple[tuple[str | None, ...], ...]:
    values: dict[tuple[int, int], list[Reported[str]]] = {}
    for part in parts:
        for gpu, row in zip(part.number_of_gpu, part.topology.nic_links, strict=False):
            for nic, link in zip(part.number_of_nic, row, strict=False):
                if nic is not None and link is not None:
                    values.setdefault((gpu, nic), []).append((part.source, link))
    return tuple(
        tuple(
            _agreed(values.get((gpu, nic), ()), f"link of GPU{gpu} and {name}", _is_same_link)
            for nic, name in enumerate(nics.devices)
        )
        for gpu in range(gpus)
    )


def _of_nics(
    parts: Sequence[Part],
    nics: Nics,
    field: str,
    values_of: Callable[[GpuTopology], Sequence[_T | None]],
    is_same: Callable[[Any, Any], bool],
) -> tuple[_T | None, ...]:
    """Return a field by NIC, nothing where no source gives it."""
    values: list[list[Reported[_T]]] = [[] for _ in nics.devices]
    for part in parts:
        for nic, value in zip(part.number_of_nic, values_of(part.topology), strict=False):
            if nic is not None and value is not None:
                values[nic].append((part.source, value))
    if not any(values):
        return ()
    named = zip(nics.devices, values, strict=True)
    return tuple(_agreed(values, f"{name}, {field}", is_same) for name, values in named)


def _hostname(parts: Sequence[Part]) -> str | None:
    """Return the longest form of the name: one source may leave the domain out."""
    values = [(part.source, part.topology.hostname) for part in parts if part.topology.hostname]

    def is_same(a: str, b: str) -> bool:
        short, long = sorted((a.lower(), b.lower()), key=len)
        return short == long or long.startswith(f"{short}.")

    names: list[Reported[str]] = [(source, name) for source, name in values if name]
    _agreed(names, "hostname", is_same)
    return max((name for _, name in names), key=len, default=None)


def _cpu_sets(parts: Sequence[Part], gpus: int, warnings: list[str]) -> tuple[CpuSet | None, ...]:
    """Return the CPU sets of the first source that gives any, its gaps left open."""
    values = []
    for part in parts:
        if any(part.topology.cpu_sets):
            sets = dict(zip(part.number_of_gpu, part.topology.cpu_sets, strict=False))
            values.append((part.source, [sets.get(number) for number in range(gpus)]))
    for source, sets_of_gpu in values[1:]:
        pair = _grouped_otherwise(values[0][1], sets_of_gpu)
        if pair:
            first = values[0][0]
            warnings.append(
                f"{first} and {source} group GPUs by CPUs in different ways (GPU{pair[0]} and GPU{pair[1]}); "
                f"those of {first} count"
            )
    return tuple(values[0][1]) if values else ()


def _grouped_otherwise(
    mine: Sequence[CpuSet | None], theirs: Sequence[CpuSet | None]
) -> tuple[int, int] | None:
    """Return a pair of GPUs that share their CPUs by one reading and not by the other."""
    groups: dict[CpuSet, int] = {}
    others: dict[CpuSet, int] = {}
    for gpu, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if a is None or b is None:
            continue
        by_mine, by_theirs = groups.setdefault(a, gpu), others.setdefault(b, gpu)
        if by_mine != by_theirs:
            return min(by_mine, by_theirs), gpu
    return None


def _first(
    parts: Sequence[Part],
    field: str,
    value_of: Callable[[GpuTopology], float | None],
    warnings: list[str],
) -> float | None:
    """Return what the first source gives; warn where others differ."""
    values = [(part.source, value_of(part.topology)) for part in parts]
    given = [(source, value) for source, value in values if value is not None]
    for source, value in given[1:]:
        if value != given[0][1]:
            warnings.append(
                f"{given[0][0]} and {source} differ in {field}: {given[0][1]:g} and {value:g}; the first counts"
            )
    return given[0][1] if given else None
