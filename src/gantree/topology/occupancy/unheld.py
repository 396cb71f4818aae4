"""GPUs, whole and in parts, that nobody holds, by node; and which of them nothing that the machines offer can use.

A GPU is stranded where its node has no CPU or no memory left; a part of one also where no profile of MIG, and no share,
fits into what is left of its GPU. What a claim or reservation holds is not free, so it is never stranded.
"""

from functools import lru_cache

import numpy as np

from gantree.topology.fabric.fabric import FloatArray
from gantree.topology.occupancy.gpus.gpu_state import (
    MILLIONTHS,
    GpuState,
    PartRules,
    free_millionths,
    free_share_KiB,
)
from gantree.topology.occupancy.occupancy import Occupancy


class UnheldGpus:
    """Follows the change log of one occupancy: unheld[node], and of them cut_off[node], into which nothing fits."""

    def __init__(self, occupancy: Occupancy) -> None:
        nodes = len(occupancy.fabric.nodes)
        self.occupancy = occupancy
        self.unheld: FloatArray = np.zeros(nodes)
        self.cut_off: FloatArray = np.zeros(nodes)
        self._version: int | None = None
        machines = [occupancy.fabric.machine_of_node(node) for node in range(nodes)]
        self._counts_cpus = np.array([bool(each.cpus) for each in machines])
        self._counts_memory = np.array([bool(each.memory_GiB) for each in machines])

    def follow(self) -> bool:
        """Bring the arrays up to date; whether anything was touched."""
        log = self.occupancy.log
        if self._version == log.version:
            return False
        touched = None if self._version is None else log.since(self._version)
        for node in range(len(self.unheld)) if touched is None else touched:
            self._count(node)
        self._version = log.version
        return True

    def stranded(self) -> FloatArray:
        """The stranded GPUs of each node."""
        host = self.occupancy.host
        no_cpu = self._counts_cpus & (host.microcpus_of_node <= 0)
        no_memory = self._counts_memory & (host.memory_KiB_of_node <= 0)
        return np.where(no_cpu | no_memory, self.unheld, self.cut_off)

    def _count(self, node: int) -> None:
        mask = self.occupancy.free.mask_of_node[node]
        unheld, cut_off = float(mask.bit_count()), 0.0
        if node in self.occupancy.parts_of_node:
            state = self.occupancy.split.state(node)
            for gpu, one in enumerate(state.gpus):
                if not mask >> gpu & 1:
                    part, fits = _left_of(state.rules, one, state.recut)
                    unheld += part
                    cut_off += 0.0 if fits else part
        self.unheld[node], self.cut_off[node] = unheld, cut_off


@lru_cache(maxsize=1 << 14)
def _left_of(rules: PartRules, state: GpuState, recut: bool) -> tuple[float, bool]:
    """The part of a GPU that nobody holds, and whether anything fits into it."""
    if state.whole:
        return 0.0, True
    if state.mig and rules.table is not None:
        table, held = rules.table, state.held_instances
        slices = sum(table.profile(one.profile).compute_slices for one in held)
        idle = any(not one.held for one in state.instances)
        fits = idle or (recut and any(table.fits(held, each.name) for each in table.profiles))
        return 1.0 - slices / table.compute_slices, fits
    left = free_millionths(state)
    memory_KiB = free_share_KiB(rules, state)
    is_full = rules.tenants is not None and len(state.tenants) >= rules.tenants
    return left / MILLIONTHS, (memory_KiB is None or memory_KiB > 0) and not is_full
