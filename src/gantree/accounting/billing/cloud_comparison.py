"""What the GPU-hours of a period would have cost at list prices, beside what own and rented GPUs cost."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gantree.accounting.billing.bill import GPU, HOUR_S, MICROS, Bill, BookRow
from gantree.accounting.billing.tariff import Tariff
from gantree.topology.hardware.prices import LIST_PRICES, Quote


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """GPUs of one model over a period.

    paid_USD is the price of all there were, held or not; on_demand and spot are list prices, None where there is none.
    own_hours are those of own GPUs, and depreciation, upkeep and power their parts of paid_USD.
    """

    model: str
    held_hours: float
    there_hours: float
    paid_USD: float
    own_hours: float
    depreciation_USD: float
    upkeep_USD: float
    power_USD: float
    on_demand: Quote | None
    spot: Quote | None

    @property
    def on_demand_USD(self) -> float | None:
        """The hours that were held, on demand."""
        return None if self.on_demand is None else self.held_hours * self.on_demand.USD_per_hour

    @property
    def spot_USD(self) -> float | None:
        """The same at the spot price. Interruptions cost more hours, which are not in it."""
        return None if self.spot is None else self.held_hours * self.spot.USD_per_hour

    @property
    def paid_per_held_hour(self) -> float | None:
        """What an hour came to that somebody held."""
        return self.paid_USD / self.held_hours if self.held_hours else None

    @property
    def break_even(self) -> float | None:
        """The share of time that GPUs must be held to cost no more than on demand; above 1 they never do."""
        if self.on_demand is None or not self.there_hours or not self.on_demand.USD_per_hour:
            return None
        return self.paid_USD / self.there_hours / self.on_demand.USD_per_hour


def compared(rows: Iterable[BookRow], bill: Bill, tariff: Tariff) -> list[ModelComparison]:
    """One row for each model with a price in the bill, by name."""
    held_hours = defaultdict[str, float](float)
    for row in rows:
        held_hours[row.key.model] += row.amounts.allocated_gpu_s / HOUR_S
    of_model = defaultdict[str, list[float]](lambda: [0.0, 0.0, 0.0])
    for line in bill.capacity:
        if line.pool.resource == GPU:
            sums = of_model[line.pool.model]
            sums[0] += line.hours
            sums[1] += line.micros / MICROS
            sums[2] += line.hours if line.pool.market == "owned" else 0.0
    return [
        _compared(model, held_hours[model], *of_model[model], tariff=tariff)
        for model in sorted(of_model)
    ]


def _compared(
    model: str, held: float, there: float, paid: float, own: float, *, tariff: Tariff
) -> ModelComparison:
    cost = tariff.owned.get(model)
    parts = (0.0, 0.0, 0.0) if cost is None else (cost.depreciation, cost.upkeep, cost.power)
    depreciation, upkeep, power = (own * part for part in parts)
    listed = LIST_PRICES.quote(model), LIST_PRICES.quote(model, "spot")
    return ModelComparison(model, held, there, paid, own, depreciation, upkeep, power, *listed)
