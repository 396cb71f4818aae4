"""What requests and tokens cost now: the price of an hour of all replicas, over what they did in the last window."""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
HOUR_S = 3600.0
MILLION = 1e6


def add_cost(rows: Sequence[Json]) -> None:
    """Put into rows of services, with their load, what a request costs, and a million tokens that are written."""
    for row in rows:
        load = row["load"] or {}
        price = row["USD_per_hour"]
        row["USD_per_request"] = cost(price, load.get("rate"))
        row["USD_per_million_tokens"] = cost(price, load.get("tokens_per_s"), MILLION)


def cost(USD_per_hour: float | None, per_s: float | None, of_so_many: float = 1.0) -> float | None:
    """US dollars for so many; None where a price is not known, or there were none."""
    return None if USD_per_hour is None or not per_s else of_so_many * USD_per_hour / HOUR_S / per_s
