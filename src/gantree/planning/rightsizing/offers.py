"""GPU models of a fabric by market, and the cost of interruptions of spot nodes for a job."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import Market

DAY_S = 86_400.0
MOST_EXPONENT = 500.0


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes of one GPU model and market: the GPUs of the largest, and how often a day one is taken back in the mean."""

    gpus_of_node: int
    per_day: float = 0.0


Offers = Mapping[str | None, Mapping[Market, Offer]]
"""By GPU model (None: GPUs of no named model) and market, in the order of the fabric; nodes without GPUs apart."""


@lru_cache(maxsize=8)
def offers_of(fabric: Fabric) -> Offers:
    """What a fabric offers when it is empty."""
    nodes_of: dict[str | None, dict[Market, list[tuple[int, float]]]] = {}
    for index, node in enumerate(fabric.nodes):
        machine = fabric.machine_of_node(index)
        if machine.gpus:
            market: Market = "on_demand" if node.spot is None else "spot"
            of_model = nodes_of.setdefault(machine.gpu, {})
            of_model.setdefault(market, []).append((machine.gpus, node.spot or 0.0))
    return MappingProxyType(
        {
            model: {market: _offer(nodes) for market, nodes in markets.items()}
            for model, markets in nodes_of.items()
        }
    )


def _offer(nodes: list[tuple[int, float]]) -> Offer:
    return Offer(max(gpus for gpus, _ in nodes), sum(rate for _, rate in nodes) / len(nodes))


def markets_of(offers: Offers, model: str | None) -> list[Mapping[Market, Offer]]:
    """What is offered of a model; of all models for None."""
    return [offers[model]] if model is not None else list(offers.values())


def stretch(interval_s: float, restart_s: float, per_day: float) -> float:
    """How much longer a run takes that is interrupted so often a day: 1 for never, inf for too often to end.

    Each interruption costs a restart and what was done since the last checkpoint, of which there is one every
    interval_s of work: half an interval in the mean. In full, for interruptions that come at random and hit restarts
    too: e^(R/M) (e^(t/M) - 1) M / t, at a mean time M between them (Daly 2006, A higher order estimate of the optimum
    checkpoint interval, equation 20, saving itself taken as free); near 1 + (t/2 + R) / M where M is long.
    """
    between_s = DAY_S / per_day if per_day else math.inf
    lost, redone = restart_s / between_s, interval_s / between_s
    if lost + redone > MOST_EXPONENT:
        return math.inf
    return math.exp(lost) * (math.expm1(redone) / redone if redone else 1.0)
