"""Dollars of answers on usage at prices of a site, in place of those of the catalogue."""

from typing import Any

from gantree.topology.hardware.prices import PriceList

Json = dict[str, Any]


def at_prices(report: Json, prices: PriceList) -> Json:
    """An answer of `usage_view.usage`, its dollars and its hours without a price made anew."""
    for row in (*report["rows"], report["sum"]):
        hours_of_model = row["held_gpu_hours_of_model"]
        quotes = {model: prices.quote(model) for model in hours_of_model}
        row["USD"] = sum(
            hours * quote.USD_per_hour
            for model, hours in hours_of_model.items()
            if (quote := quotes[model]) is not None
        )
        row["unpriced_gpu_hours"] = sum(
            hours for model, hours in hours_of_model.items() if quotes[model] is None
        )
    return report
