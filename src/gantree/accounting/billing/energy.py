"""Energy and emissions of GPUs over a period, by assumptions: a model of power, not a measurement.

A GPU that is held takes `load` of its power limit, another `idle_load`, each times the building's PUE
(`tariff.PowerTerms`). GPUs on nodes that are down count as idle: most of them are powered. A model whose limit is not
known has no row.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.accounting.billing.bill import HOUR_S, BookRow
from gantree.accounting.billing.tariff import PowerTerms


@dataclass(frozen=True, slots=True)
class Energy:
    """Hours and kWh of the GPUs of one model, held and not; US dollars and kg of CO2 where the terms state them."""

    model: str
    held_hours: float
    idle_hours: float
    held_kWh: float
    idle_kWh: float
    USD: float | None
    kgCO2: float | None

    @property
    def kWh(self) -> float:
        """All of it."""
        return self.held_kWh + self.idle_kWh


def energy_of(rows: Iterable[BookRow], terms: PowerTerms) -> list[Energy]:
    """One row for each model with a known power limit, by name."""
    hours_of: dict[str, list[float]] = {}
    for row in rows:
        held_there = hours_of.setdefault(row.key.model, [0.0, 0.0])
        held_there[0] += row.amounts.allocated_gpu_s / HOUR_S
        held_there[1] += row.amounts.capacity_gpu_s / HOUR_S
    found = (_energy(model, *hours_of[model], terms=terms) for model in sorted(hours_of))
    return [each for each in found if each is not None and (each.held_hours or each.idle_hours)]


def _energy(model: str, held: float, there: float, *, terms: PowerTerms) -> Energy | None:
    busy_W, idle_W = terms.watts(model, terms.load), terms.watts(model, terms.idle_load)
    if busy_W is None or idle_W is None:
        return None
    idle = max(0.0, there - held)
    held_kWh, idle_kWh = held * busy_W / 1000, idle * idle_W / 1000
    kWh = held_kWh + idle_kWh
    USD = None if terms.USD_per_kWh is None else kWh * terms.USD_per_kWh
    kgCO2 = None if terms.gCO2_per_kWh is None else kWh * terms.gCO2_per_kWh / 1000
    return Energy(model, held, idle, held_kWh, idle_kWh, USD, kgCO2)
