"""A machine as a driver or tool describes it, and the machine model made of it.

Every parser of a machine source returns a `GpuTopology`: what the source states and no more. None, or an empty tuple,
is what it does not state. `inferred` has sentences on what was concluded from something else, `warnings` what is
missing or odd; nothing is guessed silently. `machine_from` makes the model that cluster files and the search use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from gantree.model.cluster import NO_LINK, Machine, Nic
from gantree.topology.hardware.catalog import SELF, bonded_links, weakness

CpuSet = tuple[tuple[int, int], ...]
"""Ranges of CPUs, first and last."""


@dataclass(frozen=True, slots=True)
class GpuTopology:
    """What a source states of one machine. GPUs and NICs are numbered in the source's order; None is "not given".

    links[gpu][gpu] and nic_links[gpu][nic] are link classes ("X" on the diagonal); numa[gpu] the CPU node, and
    one_numa_node states that there is only one; cpu_sets[gpu] ranges of CPUs. nics are names as the
    source prints them, device_of_nic their devices where a legend gives them. The rest is by GPU or by NIC in the same
    order, or empty where the source gives nothing: peer[a][b] is whether GPUs a and b reach each other's memory
    (P2P), clique_of_gpu the NVLink domain across nodes ("<cluster uuid>.<clique>"), GBps_of_nic the rate of a NIC in
    one direction, guid_of_nic its GUIDs (16 hex digits, lower case), bus ids as sysfs writes them ("0000:1b:00.0").
    """

    links: tuple[tuple[str | None, ...], ...]
    nic_links: tuple[tuple[str | None, ...], ...]
    numa: tuple[int | None, ...]
    one_numa_node: bool = False
    cpu_sets: tuple[CpuSet | None, ...] = ()
    nics: tuple[str, ...] = ()
    device_of_nic: Mapping[str, str] = field(default_factory=dict)
    hostname: str | None = None
    model_of_gpu: tuple[str | None, ...] = ()
    memory_MiB_of_gpu: tuple[int | None, ...] = ()
    uuid_of_gpu: tuple[str | None, ...] = ()
    bus_id_of_gpu: tuple[str | None, ...] = ()
    clique_of_gpu: tuple[str | None, ...] = ()
    peer: tuple[tuple[bool | None, ...], ...] = ()
    GBps_of_nic: tuple[float | None, ...] = ()
    guid_of_nic: tuple[str | None, ...] = ()
    cpus: float | None = None
    memory_GiB: float | None = None
    inferred: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """How many GPUs the machine has."""
        return len(self.links)

    def nvlink_islands(self) -> tuple[tuple[int, ...], ...]:
        """Return the sets of two or more GPUs that NVLinks join, directly or over others."""
        island = list(range(self.gpus))
        for a, b in combinations(range(self.gpus), 2):
            if bonded_links(self.links[a][b] or NO_LINK) and island[a] != island[b]:
                old, new = max(island[a], island[b]), min(island[a], island[b])
                island = [new if of == old else of for of in island]
        groups = (
            tuple(g for g in range(self.gpus) if island[g] == first)
            for first in sorted(set(island))
        )
        return tuple(group for group in groups if len(group) > 1)

    def nearest_nics(self) -> tuple[tuple[str, ...], ...]:
        """Return per GPU the columns of its nearest NICs, all that tie; none where all NICs tie or one is unknown.

        The only NIC of a machine has none to tie with, and is the nearest.
        """
        return tuple(self._nearest(row) for row in self.nic_links)

    def _nearest(self, row: tuple[str | None, ...]) -> tuple[str, ...]:
        if not row or None in row:
            return ()
        best = min(row, key=_weakness)
        nearest = tuple(nic for nic, link in zip(self.nics, row, strict=True) if link == best)
        return () if len(row) > 1 and len(nearest) == len(row) else nearest

    def as_json(self) -> dict[str, object]:
        """Return what `gantree topo import KIND --json` prints; what is not given by the source is left out."""
        given: dict[str, object] = {
            "gpus": self.gpus,
            "links": [list(row) for row in self.links],
            "nvlink_islands": [list(island) for island in self.nvlink_islands()],
            "numa": list(self.numa),
            "nearest_nics": [list(names) for names in self.nearest_nics()],
            "warnings": list(self.warnings),
        }
        more = {
            "inferred": self.inferred,
            "hostname": self.hostname,
            "models": self.model_of_gpu,
            "memory_MiB": self.memory_MiB_of_gpu,
            "uuids": self.uuid_of_gpu,
            "bus_ids": self.bus_id_of_gpu,
            "cliques": self.clique_of_gpu,
            "peer": [list(row) for row in self.peer],
            "nics": self.nics,
            "nic_GBps": self.GBps_of_nic,
            "nic_guids": self.guid_of_nic,
            "cpus": self.cpus,
            "memory_GiB": self.memory_GiB,
        }
        return given | {
            key: _plain(value) for key, value in more.items() if value not in (None, (), [])
        }


def machine_from(topology: GpuTopology, name: str) -> Machine:
    """Return a machine model of that name; what the source does not give stays None.

    A NIC is near to the GPUs that have the best path to it, unless that crosses sockets or they have a better NIC
    (storage NICs are near to none); those that are near to some GPU are numbered as rails in column order.
    Sockets are NUMA nodes, or else CPU sets that do not overlap.
    """
    links = tuple(tuple(link or NO_LINK for link in row) for row in topology.links)
    numa = topology.numa
    if topology.one_numa_node:
        numa = (0,) * topology.gpus
    elif not any(node is not None for node in numa):
        numa = _numa_of_cpu_sets(topology.cpu_sets)
    known = any(link for row in topology.links for link in row if link != SELF)
    models = set(topology.model_of_gpu)
    return Machine(
        name,
        topology.gpus,
        gpu=models.pop() if len(models) == 1 else None,
        links=links if known else (),
        numa=numa if any(node is not None for node in numa) else (),
        nics=_nics(topology),
        cpus=topology.cpus,
        memory_GiB=topology.memory_GiB,
        peer=_told_peers(topology),
    )


def _told_peers(topology: GpuTopology) -> tuple[tuple[bool, ...], ...]:
    """Which GPUs reach each other's memory; nothing where the source does not give, or all do."""
    if all(given is not False for row in topology.peer for given in row):
        return ()
    return tuple(tuple(given is not False for given in row) for row in topology.peer)


def _numa_of_cpu_sets(
    cpu_sets: tuple[tuple[tuple[int, int], ...] | None, ...],
) -> tuple[int | None, ...]:
    """Number the distinct CPU sets from 0 by their lowest CPU; all None where two of them overlap."""
    distinct = sorted({cpus for cpus in cpu_sets if cpus})
    runs = sorted(run for cpus in distinct for run in cpus)
    if any(begin <= last for (_, last), (begin, _) in pairwise(runs)):
        return (None,) * len(cpu_sets)
    return tuple(distinct.index(cpus) if cpus else None for cpus in cpu_sets)


def _nics(topology: GpuTopology) -> tuple[Nic, ...]:
    devices = [topology.device_of_nic.get(name, name) for name in topology.nics]
    names = devices if len(set(devices)) == len(devices) else list(topology.nics)
    best_of_gpu = [_best(row) for row in topology.nic_links]
    columns = [[row[nic] for row in topology.nic_links] for nic in range(len(names))]
    near = [_near_gpus(column, best_of_gpu) for column in columns]
    rail = _counter(bool(gpus) for gpus in near)
    GBps = topology.GBps_of_nic or (None,) * len(names)
    return tuple(
        Nic(name, gpus, number, rate, (column[gpus[0]] or NO_LINK) if gpus else NO_LINK)
        for name, gpus, number, rate, column in zip(names, near, rail, GBps, columns, strict=True)
    )


def _near_gpus(column: Sequence[str | None], best_of_gpu: Sequence[str | None]) -> tuple[int, ...]:
    """Return the GPUs with the best path to a NIC, as far as they have no better one to another."""
    best = _best(column)
    return tuple(
        gpu
        for gpu, link in enumerate(column)
        if link == best == best_of_gpu[gpu] and link not in {"SYS", None}
    )


def _best(links: Sequence[str | None]) -> str | None:
    """Return the best of these paths; while one is unknown, only one behind a switch is sure to be it."""
    return "PIX" if None in links else min(links, key=_weakness, default=None)


def _counter(counted: Iterable[bool]) -> list[int | None]:
    numbers: list[int | None] = []
    for each in counted:
        numbers.append(sum(number is not None for number in numbers) if each else None)
    return numbers


def _weakness(link: str | None) -> int:
    return weakness(link or NO_LINK)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
