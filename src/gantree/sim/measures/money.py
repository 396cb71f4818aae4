"""Money: GPU-hours of a run at list prices, for on-demand nodes and spot nodes.

Every GPU of the cluster is paid for over the whole run, held or idle, as a rented fleet is. A spot node of a model
without a spot price has no price. Prices, their dates and sources are in `topology.hardware.prices`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.model.cluster import SPOT
from gantree.sim.measures.gpu_hours import GpuHours
from gantree.topology.hardware.prices import LIST_PRICES, PriceList


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars for the GPUs of one model on one market, held and idle, by a price of this date and source."""

    gpu: str
    market: str
    gpus: int
    USD_per_hour: float
    held_USD: float
    idle_USD: float
    date: str
    source: str

    @property
    def USD(self) -> float:
        """All of it."""
        return self.held_USD + self.idle_USD


def costs_of(hours: Iterable[GpuHours], prices: PriceList = LIST_PRICES) -> list[Cost]:
    """One row for each model and market that has a price."""
    rows = []
    for row in hours:
        quote = prices.quote(row.gpu, "spot" if row.market == SPOT else "on_demand")
        if quote is not None:
            price = quote.USD_per_hour
            cost = Cost(
                row.gpu, row.market, row.gpus, price, row.held_h * price, row.idle_h * price,
                quote.date, quote.source,
            )  # fmt: skip
            rows.append(cost)
    return rows
