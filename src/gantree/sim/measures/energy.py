"""Energy of the GPUs of a run: those that gangs hold draw the power of use, the others that of idleness.

The power model and its sources are in `topology.hardware.power`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.sim.measures.gpu_hours import GpuHours
from gantree.topology.hardware.power import power_of


@dataclass(frozen=True, slots=True)
class Energy:
    """kWh of the GPUs of one model while held and while idle; watts of one GPU by which they were counted."""

    gpu: str
    gpus: int
    busy_W: float
    idle_W: float
    held_kWh: float
    idle_kWh: float

    @property
    def kWh(self) -> float:
        """All of it."""
        return self.held_kWh + self.idle_kWh


def energy_of(hours: Iterable[GpuHours]) -> list[Energy]:
    """One row for each model with a known power; both markets together."""
    by_gpu: dict[str, list[GpuHours]] = {}
    for row in hours:
        by_gpu.setdefault(row.gpu, []).append(row)
    return [
        Energy(
            gpu,
            sum(row.gpus for row in rows),
            power.busy_W,
            power.idle_W,
            sum(row.held_h for row in rows) * power.busy_W / 1000,
            sum(row.idle_h for row in rows) * power.idle_W / 1000,
        )
        for gpu, rows in by_gpu.items()
        if (power := power_of(gpu)) is not None
    ]
