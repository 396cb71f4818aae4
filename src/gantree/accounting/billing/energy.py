"""Energy and emissions of GPUs over a period: measured where counters told it, by stated assumptions elsewhere.

Counters tell what GPUs draw while gangs run (`powered_gpu_s`, `energy_kWh` of the book). In all other time a GPU that
is held takes `load` of its power limit, another `idle_load`; GPUs on nodes that are down count as idle: most of them
are powered. All of it is times the building's PUE (`tariff.PowerTerms`). A model whose limit is not known has a row
only of what was measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.accounting.billing.bill import HOUR_S, BookRow
from gantree.accounting.billing.tariff import PowerTerms


@dataclass(frozen=True, slots=True)
class Energy:
    """kWh of the GPUs of one model: held and measured, held and assumed, and not held, with the hours of each.

    US dollars and kg of CO2 are there where the terms state them.
    """

    model: str
    measured_hours: float
    assumed_hours: float
    idle_hours: float
    measured_kWh: float
    assumed_kWh: float
    idle_kWh: float
    USD: float | None
    kgCO2: float | None

    @property
    def held_kWh(self) -> float:
        """Of those that were held."""
        return self.measured_kWh + self.assumed_kWh

    @property
    def kWh(self) -> float:
        """All of it."""
        return self.held_kWh + self.idle_kWh


@dataclass(slots=True)
class _Hours:
    held: float = 0.0
    there: float = 0.0
    measured: float = 0.0
    measured_kWh: float = 0.0


def energy_of(rows: Iterable[BookRow], terms: PowerTerms) -> list[Energy]:
    """One row for each model with a known power limit, or that was measured, by name."""
    hours_of: dict[str, _Hours] = {}
    for row in rows:
        hours, amounts = hours_of.setdefault(row.key.model, _Hours()), row.amounts
        hours.held += amounts.allocated_gpu_s / HOUR_S
        hours.there += amounts.capacity_gpu_s / HOUR_S
        hours.measured += amounts.powered_gpu_s / HOUR_S
        hours.measured_kWh += amounts.energy_kWh
    found = (_energy(model, hours_of[model], terms) for model in sorted(hours_of))
    return [each for each in found if each.measured_hours or each.assumed_hours or each.idle_hours]


def _energy(model: str, hours: _Hours, terms: PowerTerms) -> Energy:
    busy_W, idle_W = terms.watts(model, terms.load), terms.watts(model, terms.idle_load)
    assumed = idle = 0.0
    if busy_W is not None:
        assumed, idle = max(0.0, hours.held - hours.measured), max(0.0, hours.there - hours.held)
    measured_kWh = hours.measured_kWh * terms.pue
    assumed_kWh, idle_kWh = assumed * (busy_W or 0.0) / 1000, idle * (idle_W or 0.0) / 1000
    kWh = measured_kWh + assumed_kWh + idle_kWh
    USD = None if terms.USD_per_kWh is None else kWh * terms.USD_per_kWh
    kgCO2 = None if terms.gCO2_per_kWh is None else kWh * terms.gCO2_per_kWh / 1000
    return Energy(
        model, hours.measured, assumed, idle, measured_kWh, assumed_kWh, idle_kWh, USD, kgCO2
    )
