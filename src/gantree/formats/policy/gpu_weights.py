"""The weight of a GPU of each model, by its price or its speed in the catalogue.

The catalogue's list prices (`topology.hardware.prices`) and peaks (`topology.hardware.constants`: dense 16 bit matrix
arithmetic, from the vendors' data sheets) are made relative to the dearest and to the fastest known. Of a model without
a dated price no price is guessed: it counts by its speed. One without either is not in the mapping, and so counts 1. A
family without a memory ("A100") counts as the first of its models, as everywhere in the catalogue.
"""

from collections.abc import Mapping

from gantree.topology.hardware.constants import traits
from gantree.topology.hardware.gpu_models import GPU_MODELS
from gantree.topology.hardware.prices import LIST_PRICES

DIGITS = 4
"""Digits behind the point: figures are not better than that."""


def weights_by(what: str) -> dict[str, float]:
    """Return weights by GPU model, above 0 and at most 1: by "price", by "speed", or none for "equal"."""
    if what == "equal":
        return {}
    speeds = _relative({model: traits(model).peak_TFLOPS for model in GPU_MODELS})
    if what == "speed":
        return _with_families(speeds)
    return _with_families(speeds | _relative(_listed()))


def list_prices() -> dict[str, float]:
    """Return what an hour of a GPU of each model costs on demand, in USD; without models that have no dated price."""
    return _with_families(_listed())


def _listed() -> dict[str, float]:
    quotes = {model: LIST_PRICES.quote(model) for model in GPU_MODELS}
    return {model: quote.USD_per_hour for model, quote in quotes.items() if quote}


def _relative(figures: Mapping[str, float]) -> dict[str, float]:
    most = max(figures.values())
    return {model: round(figure / most, DIGITS) for model, figure in figures.items() if figure > 0}


def _with_families(weights: Mapping[str, float]) -> dict[str, float]:
    found = {model: weights[model] for model in GPU_MODELS if model in weights}
    for model, weight in weights.items():
        found.setdefault(GPU_MODELS[model].family, weight)
    return found
