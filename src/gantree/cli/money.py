"""What GPUs cost by the hour and by the step, at list prices or a site's own."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from gantree.model.placements import MemberPlacement
from gantree.topology.fabric import Fabric
from gantree.topology.prices import Market, PriceList

HOUR_S = 3600.0


def prices_json(
    known: PriceList, fabric: Fabric, members: Sequence[MemberPlacement], step_s: float | None
) -> dict[str, Any]:
    """Dollars of all GPUs of the members, by market; null where a GPU among them has no price there."""
    gpus_of_model: Counter[str | None] = Counter()
    for member in members:
        machine = fabric.machine_of_node(fabric.index_of_node[member.node])
        gpus_of_model[machine.gpu] += len(member.gpus)
    return {market: _of_market(known, gpus_of_model, market, step_s) for market in get_args(Market)}


def _of_market(
    known: PriceList, gpus_of_model: Counter[str | None], market: Market, step_s: float | None
) -> dict[str, Any] | None:
    quotes = {model: known.quote(model, market) for model, gpus in gpus_of_model.items() if gpus}
    told = {model: quote for model, quote in quotes.items() if quote is not None}
    if not told or len(told) < len(quotes):
        return None
    USD_per_hour = sum(quote.USD_per_hour * gpus_of_model[model] for model, quote in told.items())
    return {
        "USD_per_hour": USD_per_hour,
        "USD_per_step": None if step_s is None else USD_per_hour * step_s / HOUR_S,
        "quotes": [f"{quote.gpu}: {quote.source}, {quote.date}" for quote in told.values()],
    }


def price_lines(prices: dict[str, Any]) -> Iterator[str]:
    """A line for each market that has a price."""
    for market, price in prices.items():
        if price is not None:
            step = price["USD_per_step"]
            by_step = "" if step is None else f", ${step:.3g} a step"
            hour = f"{price['USD_per_hour']:.2f}"
            yield f"{market.replace('_', ' ')}: ${hour} an hour{by_step} ({'; '.join(price['quotes'])})"
