"""What of each NUMA node of a machine is held: CPUs, memory and memory bandwidth.

A machine has as many NUMA nodes as its GPUs name; CPUs and memory are spread evenly over them, for no source says
otherwise. Members say what they hold where (`MemberPlacement.numa`); what says no NUMA node is counted for the whole
node only, by `occupancy`. Which NUMA node a member gets is decided in `placement`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from gantree.model.cluster import Machine
from gantree.model.placements import NumaPart


def numa_nodes(machine: Machine) -> tuple[int, ...]:
    """The NUMA nodes that the machine's GPUs name, rising; () where it does not tell them apart."""
    named = {numa for numa in machine.numa if numa is not None}
    return tuple(sorted(named)) if len(named) > 1 else ()


@dataclass(frozen=True, slots=True)
class NumaUse:
    """Held amounts: held[number of the NUMA node in `numa_nodes`] = (microcpus, memory KiB, memory MB/s)."""

    held: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def none(cls, machine: Machine) -> Self:
        """Nothing is held."""
        return cls(((0, 0, 0),) * len(numa_nodes(machine)))

    def changed(self, machine: Machine, parts: Sequence[NumaPart], sign: int) -> Self:
        """With these parts taken (+1) or given back (-1); parts without a NUMA node count nowhere."""
        held = [list(amounts) for amounts in self.held]
        number_of = {numa: number for number, numa in enumerate(numa_nodes(machine))}
        for part in parts:
            if part.numa is not None:
                amounts = (
                    round(part.cpus * 1_000_000),
                    round(part.memory_GiB * (1 << 20)),
                    round(part.memory_GBps * 1000),
                )
                for resource, amount in enumerate(amounts):
                    held[number_of[part.numa]][resource] += sign * amount
        return type(self)(tuple((cpus, memory, rate) for cpus, memory, rate in held))
