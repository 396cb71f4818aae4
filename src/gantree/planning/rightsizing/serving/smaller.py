"""Whether a job that serves a model could do so on less: on which device, and at which share of its cost."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gantree.model.jobs import Job
from gantree.model.served_models import ServedModel, ServingDemand
from gantree.planning.rightsizing.serving.served_by_command import served_by
from gantree.planning.rightsizing.serving.sizing import ServingOption, serving_options
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_PRICES, PriceList

OPTIONS_KEPT = 64


class SmallerWay(NamedTuple):
    """The model, the device in words, and what it costs over what is held, by price or, without one, by GPUs."""

    model: str
    words: str
    cost_share: float


def smaller_way(
    job: Job,
    held: Sequence[tuple[str, float]],
    fabric: Fabric,
    prices: PriceList = LIST_PRICES,
) -> SmallerWay | None:
    """The least of what would serve the model of a job that holds GPUs of these models; None where nothing is less.

    A device of another GPU model counts only where the prices of both are known.
    """
    served = served_by(job)
    if served is None or not held:
        return None
    model, demand = served
    ways = (
        SmallerWay(model.name, _words(way), share)
        for way in _options(model, demand, fabric, prices)
        if way.does and (share := _cost_share(way, held, prices)) is not None and share < 1.0
    )
    return min(ways, key=lambda way: way.cost_share, default=None)


@lru_cache(OPTIONS_KEPT)
def _options(
    model: ServedModel, demand: ServingDemand, fabric: Fabric, prices: PriceList
) -> tuple[ServingOption, ...]:
    return serving_options(model, demand, fabric, prices)


def _cost_share(
    way: ServingOption, held: Sequence[tuple[str, float]], prices: PriceList
) -> float | None:
    quotes = [prices.quote(model) for model, _ in held]
    USD = sum(
        quote.USD_per_hour * gpus
        for quote, (_, gpus) in zip(quotes, held, strict=True)
        if quote is not None
    )
    if way.USD_per_hour is not None and USD and None not in quotes:
        return way.USD_per_hour / USD
    if [model for model, _ in held] == [way.device.gpu]:
        return way.billed_gpus / held[0][1]
    return None


def _words(way: ServingOption) -> str:
    return way.device.words if way.copies == 1 else f"{way.copies} x {way.device.words}"
