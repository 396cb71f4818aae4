"""NUMA nodes of a machine: total and used CPUs, memory and memory bandwidth.

A machine has as many NUMA nodes as its GPUs name; CPUs and memory are spread evenly over them, for no source says
otherwise. A machine whose GPUs name one or none is a single NUMA node without a number: it matters for memory bandwidth
only, which has no other account. Members say what they hold where (`MemberPlacement.numa`) and hold it until they end;
what says no NUMA node of a machine that tells them apart is counted for the whole node only, by `occupancy`. CPUs and
memory of a NUMA node may be overdrawn (any core reaches any memory), its bandwidth never. Which NUMA node a member gets
is decided in `placement.machine.numa`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from gantree.model.cluster import Machine
from gantree.model.placements import NumaPart
from gantree.topology.hardware.masks import mask_of

Amounts = tuple[int, int, int]
"""(microcpus, memory KiB, memory bandwidth in kB/s): whole numbers, so that taking and giving back never drifts."""
CPUS, MEMORY, BANDWIDTH = range(3)
UNTOLD = 1 << 50
"""Amount of what the site did not tell; no member asks for as much."""
KEPT_LAYOUTS = 1 << 12
"""Machines of which the NUMA nodes are remembered before the memory is emptied."""


def numa_nodes(machine: Machine) -> tuple[int, ...]:
    """The NUMA nodes that the machine's GPUs name, rising; () where it does not tell them apart."""
    named = {numa for numa in machine.numa if numa is not None}
    return tuple(sorted(named)) if len(named) > 1 else ()


@dataclass(frozen=True, slots=True, eq=False)
class NumaLayout:
    """The NUMA nodes of one machine, by their place in `names` (rising; (None,) where it does not tell them apart).

    gpus[place] is the mask of the GPUs on a NUMA node (a GPU without a number is on none), capacity what each has,
    place_of[name] the way back.
    """

    names: tuple[int | None, ...]
    gpus: tuple[int, ...]
    capacity: Amounts
    place_of: dict[int | None, int]

    def gpus_at(self, gpus: Sequence[int]) -> list[int]:
        """How many of these GPUs are on each NUMA node."""
        mask = mask_of(gpus)
        return [(mask & here).bit_count() for here in self.gpus]


_LAYOUT_OF_IDENTITY: dict[int, tuple[Machine, NumaLayout]] = {}
"""id(machine) -> the machine, held so that no other gets its id, and its layout. Hashing a machine takes too long."""


def numa_layout(machine: Machine) -> NumaLayout:
    """The NUMA nodes of a machine."""
    entry = _LAYOUT_OF_IDENTITY.get(id(machine))
    if entry is None:
        if len(_LAYOUT_OF_IDENTITY) >= KEPT_LAYOUTS:
            _LAYOUT_OF_IDENTITY.clear()
        entry = _LAYOUT_OF_IDENTITY[id(machine)] = (machine, _layout(machine))
    return entry[1]


@lru_cache(maxsize=KEPT_LAYOUTS)
def _layout(machine: Machine) -> NumaLayout:
    names: tuple[int | None, ...] = numa_nodes(machine) or (None,)
    everything = (1 << machine.gpus) - 1
    gpus = tuple(
        everything
        if name is None
        else mask_of(g for g, at in enumerate(machine.numa) if at == name)
        for name in names
    )
    rate = machine.numa_memory_GBps
    capacity = (
        UNTOLD if machine.cpus is None else -(-round(machine.cpus * 1_000_000) // len(names)),
        UNTOLD
        if machine.memory_GiB is None
        else -(-round(machine.memory_GiB * (1 << 20)) // len(names)),
        UNTOLD if rate is None else round(rate * 1_000_000),
    )
    return NumaLayout(names, gpus, capacity, {name: place for place, name in enumerate(names)})


def amounts_of(cpus: float, memory_GiB: float, memory_GBps: float) -> Amounts:
    """Amounts in whole numbers."""
    return round(cpus * 1_000_000), round(memory_GiB * (1 << 20)), round(memory_GBps * 1_000_000)


def part_of(numa: int | None, amounts: Sequence[int]) -> NumaPart:
    """What is held on a NUMA node, in the model's words; `amounts_of` gives the same numbers back."""
    cpus, memory, rate = amounts
    return NumaPart(numa, cpus / 1_000_000, memory / (1 << 20), rate / 1_000_000)


@dataclass(frozen=True, slots=True)
class NumaUse:
    """Held amounts: held[place of the NUMA node in `NumaLayout.names`]."""

    held: tuple[Amounts, ...]

    @classmethod
    def none(cls, machine: Machine) -> Self:
        """Nothing is held."""
        return cls(((0, 0, 0),) * len(numa_layout(machine).names))

    def changed(self, machine: Machine, parts: Sequence[NumaPart], sign: int) -> Self:
        """With these parts taken (+1) or given back (-1).

        Parts without a NUMA node count nowhere on a machine that tells them apart. AssertionError for a NUMA node that
        the machine has not.
        """
        if not parts:
            return self
        held = list(self.held)
        place_of = numa_layout(machine).place_of
        for part in parts:
            place = place_of.get(part.numa)
            if place is None:
                assert part.numa is None, f"{machine.name} has no NUMA node {part.numa}"
                continue
            cpus, memory, rate = amounts_of(part.cpus, part.memory_GiB, part.memory_GBps)
            now = held[place]
            held[place] = (now[0] + sign * cpus, now[1] + sign * memory, now[2] + sign * rate)
        return type(self)(tuple(held))

    def missing(self, machine: Machine, parts: Sequence[NumaPart]) -> str:
        """What of these parts is not there or not free, in words; empty where they can be taken.

        Only bandwidth is ever missing: CPUs and memory are counted for the whole node.
        """
        layout = numa_layout(machine)
        asked = [0] * len(layout.names)
        for part in parts:
            place = layout.place_of.get(part.numa)
            if place is not None:
                asked[place] += round(part.memory_GBps * 1_000_000)
            elif part.numa is not None:
                return f"there is no NUMA node {part.numa}"
        for place, rate in enumerate(asked):
            free = layout.capacity[BANDWIDTH] - self.held[place][BANDWIDTH]
            if rate > max(0, free):
                name = layout.names[place]
                where = "" if name is None else f" of NUMA node {name}"
                return f"{rate / 1e6:g} GB/s of memory bandwidth{where} are not free, {free / 1e6:g} GB/s are"
        return ""

    def free(self, machine: Machine) -> list[Amounts]:
        """What is free on each NUMA node; never below 0."""
        cpus, memory, rate = numa_layout(machine).capacity
        return [(max(0, cpus - c), max(0, memory - m), max(0, rate - r)) for c, m, r in self.held]
