"""Prices of what the check before a start measures, on the fabric as it is now: calibrated, with worn links."""

from collections.abc import Mapping, Sequence
from typing import Any

from gantree.model.orders import StartGang
from gantree.telemetry.checking.rounds import rounds
from gantree.telemetry.checking.spec import GPU_BYTES
from gantree.topology.cost.pricing import Pricer, pricer_of
from gantree.topology.fabric.fabric import Fabric

COLLECTIVE = "all_reduce"
Ranks = list[tuple[int, int]]


def prices_of_check(order: StartGang, fabric: Fabric | None) -> Mapping[str, Any]:
    """Return busbw in GB/s of the gang, of members, of pairs of them, and of pairs of GPUs of a member.

    Empty where a node of the order is not in the fabric, or a member has no whole GPUs.
    """
    members = sorted(order.members, key=lambda each: each.node_rank)
    if fabric is None or not all(m.gpus and m.node in fabric.index_of_node for m in members):
        return {}
    pricer = pricer_of(fabric)
    ranks = [[(fabric.index_of_node[m.node], gpu) for gpu in m.gpus] for m in members]
    return {
        "gang": _busbw(pricer, [each for of_member in ranks for each in of_member]),
        "members": _of_members(pricer, ranks),
        "pairs": [
            (a, b, _busbw(pricer, ranks[a] + ranks[b]))
            for pairs in rounds(len(members))
            for a, b in pairs
        ],
        "gpus": [
            (number, a, b, _busbw(pricer, [own[a], own[b]]))
            for number, own in enumerate(ranks)
            for pairs in rounds(len(own))
            for a, b in pairs
        ],
    }


def _of_members(pricer: Pricer, ranks: Sequence[Ranks]) -> list[tuple[int, float]]:
    inside = ((number, own) for number, own in enumerate(ranks) if len(own) > 1)
    return [(number, _busbw(pricer, own)) for number, own in inside]


def _busbw(pricer: Pricer, ranks: Ranks) -> float:
    return pricer.price(COLLECTIVE, GPU_BYTES, ranks).busbw_GBps
