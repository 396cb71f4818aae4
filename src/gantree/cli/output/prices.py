"""What GPUs cost by the hour and by the step, at list prices or a site's own."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gantree.cli.output.figures import dollars
from gantree.model.placements import MemberPlacement
from gantree.text.words import did_you_mean, shortened
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.gpu_models import GPU_MODELS, gpu_model
from gantree.topology.hardware.prices import LIST_MARKETS, Market, PriceList

HOUR_S = 3600.0
MARKETS = LIST_MARKETS
UNNAMED = "GPUs of no named model"


def prices_json(
    known: PriceList, fabric: Fabric, members: Sequence[MemberPlacement], step_s: float | None
) -> dict[str, Any]:
    """Dollars of all GPUs of the members, by market; null where a GPU among them has no price there.

    "unpriced" names those GPUs by market.
    """
    gpus_of_model: Counter[str | None] = Counter()
    for member in members:
        machine = fabric.machine_of_node(fabric.index_of_node[member.node])
        gpus_of_model[machine.gpu] += len(member.gpus)
    models = [model for model, gpus in gpus_of_model.items() if gpus]
    answer: dict[str, Any] = {
        market: _of_market(known, gpus_of_model, market, step_s) for market in MARKETS
    }
    answer["unpriced"] = {
        market: [model or UNNAMED for model in models if known.quote(model, market) is None]
        for market in MARKETS
    }
    return answer


def _of_market(
    known: PriceList, gpus_of_model: Counter[str | None], market: Market, step_s: float | None
) -> dict[str, Any] | None:
    quotes = {model: known.quote(model, market) for model, gpus in gpus_of_model.items() if gpus}
    known_quotes = {model: quote for model, quote in quotes.items() if quote is not None}
    if not known_quotes or len(known_quotes) < len(quotes):
        return None
    USD_per_hour = sum(
        quote.USD_per_hour * gpus_of_model[model] for model, quote in known_quotes.items()
    )
    return {
        "USD_per_hour": USD_per_hour,
        "USD_per_step": None if step_s is None else USD_per_hour * step_s / HOUR_S,
        "quotes": [f"{quote.gpu}: {quote.source}, {quote.date}" for quote in known_quotes.values()],
    }


def price_lines(prices: dict[str, Any]) -> Iterator[str]:
    """A line for each market: dollars, or the GPUs of which no price is known."""
    for market in MARKETS:
        price, unpriced = prices[market], prices["unpriced"][market]
        words = market.replace("_", " ")
        if price is not None:
            step = price["USD_per_step"]
            by_step = "" if step is None else f", {dollars(step)} a step"
            hour = dollars(price["USD_per_hour"])
            yield f"{words}: {hour} an hour{by_step} ({'; '.join(price['quotes'])})"
        elif unpriced:
            yield f"{words}: no price for {', '.join(unpriced)}; give one with --prices FILE"


def unknown_gpu_warnings(
    known: PriceList, of_cluster: Collection[str | None] = ()
) -> Iterator[str]:
    """Warnings of prices for GPUs that neither the catalogue nor the cluster has, with the likely name."""
    for gpu in dict.fromkeys(quote.gpu for quote in known.quotes):
        model = gpu_model(gpu)
        if gpu in of_cluster or (model is not None and model.name in GPU_MODELS):
            continue
        near = did_you_mean(gpu, GPU_MODELS)
        yield f"--prices: no GPU model {shortened(gpu)} in the catalogue, so its price may not be used. {near}".rstrip()
