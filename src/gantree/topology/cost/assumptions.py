"""Assumptions of a price: default figures where the site declares none, and degraded or busy links.

Sentences for people, made once for an answer. The figures themselves are in `constants`, `hardware.intra_node` and
`nic_egress`; what a job file leaves open is reported by `step`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gantree.topology.cost.pricing import Pricer, Ranks
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.hardware.constants import LEAST_RESIDUAL
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.intra_node import UNKNOWN_LINK
from gantree.topology.hardware.masks import gpus_of
from gantree.topology.traffic.nic_egress import NicEgress
from gantree.topology.traffic.traffic_index import TrafficIndex

MOST_NAMED = 5
_PERCENT = f"{100 * LEAST_RESIDUAL:g} %"
FLOOR = f"{_PERCENT} of a link that is broken or full"


@dataclass(frozen=True, slots=True)
class PriceBasis:
    """assumed: figures that the site does not give; warnings: what makes the price unreliable, such as unknown links
    between GPUs, or links that are broken or full.
    """

    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def price_basis(pricer: Pricer, conditions: Conditions, ranks: Ranks) -> PriceBasis:
    """The basis of prices over these ranks. conditions are those that the pricer was made with."""
    traffic_index = pricer.traffic_index
    mask_of_node: dict[int, int] = {}
    for node, gpu in ranks:
        mask_of_node[node] = mask_of_node.get(node, 0) | 1 << gpu
    nodes = np.array(list(mask_of_node), dtype=np.int64)
    leaves = len(np.unique(traffic_index.island_of_node[nodes])) > 1
    worn = tuple(_worn(traffic_index, conditions, mask_of_node, nodes)) if leaves else ()
    unknown, taken = _unknown_links(traffic_index, mask_of_node)
    return PriceBasis(
        assumed=(
            *_unknown_gpus(traffic_index, mask_of_node),
            *taken,
            *(_nics(traffic_index, mask_of_node) if leaves else ()),
            *([FLOOR] if worn else ()),
        ),
        warnings=(*unknown, *_shown(worn)),
    )


def _unknown_gpus(traffic_index: TrafficIndex, mask_of_node: dict[int, int]) -> list[str]:
    """GPUs without a model: their links and computing count as those of an A100."""
    fabric = traffic_index.fabric
    names = dict.fromkeys(fabric.machine_of_node(node).gpu for node in mask_of_node)
    return [
        f"NVLinks of {name or 'GPUs of no named model'} as those of an A100"
        for name in names
        if gpu_model(name) is None
    ]


def _unknown_links(
    traffic_index: TrafficIndex, mask_of_node: dict[int, int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(warnings, what was taken) of machines between whose GPUs no source told the links.

    Where the site has NVLink domains above the node, the GPUs' own ports join nodes; a group inside one node still
    goes by what the machine tells.
    """
    warnings: dict[str, None] = {}
    taken: dict[str, None] = {}
    for node, mask in mask_of_node.items():
        kind = int(traffic_index.kind_of_node[node])
        host, inside = traffic_index.hosts[kind], traffic_index.inside(kind, mask)
        if inside.weakest != UNKNOWN_LINK:
            continue
        name, port = host.machine.name, host.port_link
        among = " inside one node" if port else ""
        warnings[
            f"machine {name} does not tell the links between its GPUs, so traffic among them{among} is priced at the "
            f"slowest; write its `links`"
        ] = None
        taken[
            f"links between GPUs of {name}{among} as SYS, {inside.ring_GBps:.3g} GB/s in a ring"
            + (f", and across nodes of a domain as {port}" if port else "")
        ] = None
    return tuple(warnings), tuple(taken)


def _nics(traffic_index: TrafficIndex, mask_of_node: dict[int, int]) -> list[str]:
    """What was taken for NICs of which the site tells nothing, or no rate."""
    told: dict[str, None] = {}
    for node in mask_of_node:
        kind = int(traffic_index.kind_of_node[node])
        machine, egress = traffic_index.hosts[kind].machine, traffic_index.egress[kind]
        if not machine.nics:
            told[f"a NIC of {egress.alone_GBps:.3g} GB/s for each GPU of {machine.name}"] = None
        elif any(nic.bandwidth_GBps is None for nic in machine.nics):
            told[f"NICs of {machine.name} as {egress.alone_GBps:.3g} GB/s"] = None
    return list(told)


# ----- broken and full


def _worn(
    traffic_index: TrafficIndex,
    conditions: Conditions,
    mask_of_node: dict[int, int],
    nodes: IntArray,
) -> Iterator[str]:
    """Each domain that the ranks leave, and each NIC that they use, of which no more than the floor is left."""
    fabric = traffic_index.fabric
    for tier in range(1, traffic_index.island_tier + 1):
        domains = np.unique(fabric.domain_of_node[tier][nodes])
        for domain in domains.tolist() if len(domains) > 1 else ():
            health = float(conditions.health_of_domain[tier][domain])
            load = float(conditions.load_of_domain[tier][domain])
            if health * (1 - load) < LEAST_RESIDUAL:
                is_node = tier == fabric.node_tier
                path = fabric.names_of_domain[tier][domain]
                name = fabric.nodes[domain].name if is_node else path
                yield f"the links of {fabric.tiers[tier]} {name} are {_why(health, load)}"
    for node, mask in mask_of_node.items():
        machine = fabric.machine_of_node(node)
        for nic in _nics_used(traffic_index.egress[int(traffic_index.kind_of_node[node])], mask):
            health = float(conditions.health_of_nic[node, nic])
            load = float(conditions.load_of_nic[node, nic])
            if health * (1 - load) < LEAST_RESIDUAL:
                name = f"{machine.nics[nic].name} of {fabric.nodes[node].name}"
                yield f"NIC {name} is {_why(health, load)}"


def _nics_used(egress: NicEgress, mask: int) -> list[int]:
    used = 0
    for gpu in gpus_of(mask):
        used |= egress.near_of_gpu[gpu] or egress.else_nics
    return list(gpus_of(used))


def _why(health: float, load: float) -> str:
    if health < LEAST_RESIDUAL:
        return f"broken (health {health:g})"
    return f"full (health {health:g}, load {load:g})"


def _shown(worn: tuple[str, ...]) -> Iterator[str]:
    for words in worn[:MOST_NAMED]:
        yield f"{words}; prices count {_PERCENT} of the capacity, so that they compare places; no such time can be met"
    if len(worn) > MOST_NAMED:
        yield f"{len(worn) - MOST_NAMED} more links and NICs are broken or full"
