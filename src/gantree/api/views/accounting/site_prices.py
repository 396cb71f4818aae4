"""Dollars of answers on usage at prices of a site, in place of those of the catalogue."""

from collections.abc import Mapping
from typing import Any

from gantree.topology.hardware.prices import PriceList

Json = dict[str, Any]


def at_prices(report: Json, prices: PriceList, priced: str = "held") -> Json:
    """An answer on usage, or on waste, its dollars and its hours without a price made anew.

    priced are the hours that cost: "held" or "wasted".
    """
    for row in (*report["rows"], report["sum"]):
        row.update(cost_of(row[f"{priced}_gpu_hours_of_model"], prices))
    return report


def dearest_first(row: Json) -> tuple[float, float, float, str]:
    """The key by which rows of an answer on waste are sorted."""
    return (-row["USD"], -row["wasted_gpu_hours"], -row["unused_cpu_hours"], row["name"])


def cost_of(hours_of_model: Mapping[str, float], prices: PriceList) -> Json:
    """Dollars of GPU-hours by model, and the hours of models without a price."""
    quotes = {model: prices.quote(model) for model in hours_of_model}
    return {
        "USD": sum(
            hours * quote.USD_per_hour
            for model, hours in hours_of_model.items()
            if (quote := quotes[model]) is not None
        ),
        "unpriced_gpu_hours": sum(
            hours for model, hours in hours_of_model.items() if quotes[model] is None
        ),
    }
