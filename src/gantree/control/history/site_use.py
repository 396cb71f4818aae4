"""What GPUs are for that no gang holds: down, held by claims, reserved, or stranded; what is left of them is free.

Down are those of nodes that are lost, unwell or taken out, and those that somebody holds whom gantree did not start.
Nodes that are kept as spares count as free. A gang that rests keeps its place and counts as nothing, so that is free.
Instances that a device plugin lists are GPUs of a node beside its whole ones, as the parts that they are.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from gantree.accounting.meter import (
    CAPACITY,
    CAPACITY_CPU,
    CAPACITY_MEMORY,
    DOWN,
    HELD,
    RESERVED,
    STRANDED,
)
from gantree.accounting.usage import NO_MODEL, UsageKey
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION
from gantree.model.placements import MemberPlacement, MigPart
from gantree.policy.amounts import held_devices, profile_of_device
from gantree.topology.fabric.fabric import FloatArray
from gantree.topology.hardware.mig import mig_table
from gantree.topology.occupancy.gpus.gpu_state import REMAINDER
from gantree.topology.occupancy.gpus.node_state import profile_of_part
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.unheld import UnheldGpus

SITE_COLUMNS = (CAPACITY, DOWN, HELD, RESERVED, STRANDED, CAPACITY_CPU, CAPACITY_MEMORY)
Levels = dict[UsageKey, dict[str, float]]
"""GPUs, cores and GiB of memory by column, of each GPU model."""


class SiteUse:
    """Follows the occupancy of one ledger."""

    def __init__(self) -> None:
        self._site: _Site | None = None

    def changed(self, ledger: Ledger, gang_gpus: Mapping[str, float]) -> Levels | None:
        """GPUs of each model and column as they are now; None where nothing changed since the last call.

        gang_gpus are the GPUs by model of the places of all gangs, of those that rest too.
        """
        occupancy = ledger.occupancy
        if occupancy is None:
            return None
        if self._site is None or self._site.occupancy is not occupancy:
            self._site = _Site(occupancy)
        return self._site.levels(ledger, gang_gpus) if self._site.gpus.follow() else None


def site_levels(ledger: Ledger) -> Levels:
    """GPUs of each model and column, of a ledger by itself."""
    return SiteUse().changed(ledger, gang_gpus(ledger)) or {}


def gang_gpus(ledger: Ledger) -> dict[str, float]:
    """The GPUs by model of the places of all gangs."""
    found: dict[str, float] = {}
    for state in ledger.holding.values():
        for model, _, gpus in state.metered.devices:
            found[model] = found.get(model, 0.0) + gpus
    return found


class _Site:
    """One fabric with its occupancy."""

    def __init__(self, occupancy: Occupancy) -> None:
        self.occupancy, self.gpus = occupancy, UnheldGpus(occupancy)
        fabric = occupancy.fabric
        self._model_of_node = [fabric.machine_of_node(n).gpu for n in range(len(fabric.nodes))]
        names = dict.fromkeys(model or NO_MODEL for model in self._model_of_node)
        self._number = {name: number for number, name in enumerate(names)}
        self._numbers: NDArray[np.int64] = np.array(
            [self._number[model or NO_MODEL] for model in self._model_of_node], dtype=np.int64
        )
        self._instances = dict(self._instances_of_nodes())
        of_machine = [dict(machine.devices) for machine in fabric.machines]
        counts = fabric.gpus_of_node.astype(np.float64)
        for name, part_of_node in self._instances.items():
            count = np.array([each.get(name, 0) for each in of_machine])
            counts += count[fabric.machine_index_of_node] * part_of_node
        self._capacity = self._by_model(counts)
        machines = [fabric.machine_of_node(n) for n in range(len(fabric.nodes))]
        self._cpus = self._by_model(np.array([each.cpus or 0.0 for each in machines]))
        self._memory_GiB = self._by_model(np.array([each.memory_GiB or 0.0 for each in machines]))

    def levels(self, ledger: Ledger, gang_gpus: Mapping[str, float]) -> Levels:
        """GPUs of each model and column."""
        usable, unheld = self.occupancy.usable_node, self.gpus.unheld
        for name, part_of_node in self._instances.items():
            unheld = unheld + self.occupancy.devices.free(name) * part_of_node
        of_model = {
            CAPACITY: self._capacity,
            HELD: self._held_by(CLAIM + job for job in ledger.claims),
            RESERVED: self._held_by(RESERVATION + job for job in ledger.reservations),
            STRANDED: self._by_model(np.where(usable, self.gpus.stranded(), 0.0)),
            CAPACITY_CPU: self._cpus,
            CAPACITY_MEMORY: self._memory_GiB,
        }
        unused = self._by_model(unheld) + of_model[HELD] + of_model[RESERVED]
        gangs = np.array([gang_gpus.get(model, 0.0) for model in self._number])
        foreign = np.maximum(0.0, self._capacity - unused - gangs)
        of_model[DOWN] = foreign + self._by_model(np.where(usable, 0.0, unheld))
        return {
            UsageKey("", "", model): {
                column: float(gpus[number]) for column, gpus in of_model.items()
            }
            for model, number in self._number.items()
        }

    def _instances_of_nodes(self) -> Iterable[tuple[str, FloatArray]]:
        """Devices that are instances, each with the part of a GPU that one of them is, by node."""
        for name in self.occupancy.devices.names():
            if profile_of_device(name):
                one = MemberPlacement("", 0, "", devices=((name, 1),))
                parts = {
                    model: _gpus_held(one, model) for model in dict.fromkeys(self._model_of_node)
                }
                yield name, np.array([parts[model] for model in self._model_of_node])

    def _held_by(self, owners: Iterable[str]) -> FloatArray:
        """The GPUs that some hold who are no gangs, by number of the model."""
        found = np.zeros(len(self._number))
        for owner in owners:
            for member in self.occupancy.owners.get(owner, ()):
                node = self.occupancy.fabric.index_of_node[member.node]
                found[self._numbers[node]] += _gpus_held(member, self._model_of_node[node])
        return found

    def _by_model(self, of_node: FloatArray) -> FloatArray:
        return np.bincount(self._numbers, of_node, len(self._number)).astype(np.float64)


def _gpus_held(member: MemberPlacement, model: str | None) -> float:
    """GPUs that a member holds; a kept slice of MIG counts as an instance of one slice."""
    if not member.mig and member.share is None and not member.devices:
        return float(len(member.gpus))
    kept = sum(part.profile == REMAINDER for part in member.mig)
    held = held_devices((member,), lambda node: model)
    gpus = sum(gpus for _, device, gpus in held if device != REMAINDER)
    return gpus + (kept * _one_slice(model) if kept else 0.0)


def _one_slice(model: str | None) -> float:
    """The part of a GPU that is kept with one slice of its memory."""
    table = mig_table(model)
    profile = profile_of_part(table, MigPart(0, REMAINDER, 0))
    if table is None or profile == REMAINDER:
        return 0.0
    return table.profile(profile).compute_slices / table.compute_slices
