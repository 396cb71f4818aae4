"""What the traffic of a step costs, flow by flow, and the step that this makes.

Which flows there are, and what of them is hidden, is in `step` for a job that trains, in `serving_step` for a service.
"""

from dataclasses import dataclass

import numpy as np

from gantree.topology.cost.pricing import Price, Pricer
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.traffic.traffic import Flow


@dataclass(frozen=True, slots=True)
class FlowCost:
    """What one flow costs a step. groups and group_size say over how many ranks; domains how many domains of each
    tier its widest group spans, by tier name. calls collectives of size_bytes take `seconds` together, of which
    exposed_s shows; price is of one call in the slowest group."""

    axis: str
    collective: str
    groups: int
    group_size: int
    domains: tuple[tuple[str, int], ...]
    size_bytes: float
    calls: int
    price: Price
    seconds: float
    exposed_s: float

    @property
    def within(self) -> str:
        """The narrowest tier one of whose domains holds every group."""
        return next(tier for tier, count in reversed(self.domains) if count == 1)


@dataclass(frozen=True, slots=True)
class Step:
    """A step: step_s = compute_s + bubble_s + the exposed seconds of the flows. comm_s is all traffic, hidden too.

    assumed says in words what the job did not tell.
    """

    step_s: float
    compute_s: float
    bubble_s: float
    comm_s: float
    exposed_s: float
    flows: tuple[FlowCost, ...]
    assumed: tuple[str, ...]


def cost_of_flow(pricer: Pricer, flow: Flow, places: IntArray, turn_of_group: IntArray) -> FlowCost:
    """Price a flow in all groups, of which those with one turn run side by side, exposed as a whole.

    places[group, rank] are (node, GPU) by index.
    """
    nodes, gpus = places[:, :, 0], places[:, :, 1]
    prices = pricer.price_together(
        flow.collective, flow.size_bytes, nodes, gpus, turn_of_group=turn_of_group
    )
    price = prices.one(int(np.argmax(prices.seconds)))
    seconds = flow.calls * price.seconds
    fabric = pricer.traffic_index.fabric
    domains = tuple(
        (fabric.tiers[tier], _most_domains(fabric.domain_of_node[tier][nodes]))
        for tier in range(len(fabric.tiers))
    )
    return FlowCost(
        axis=flow.axis,
        collective=flow.collective,
        groups=len(nodes),
        group_size=nodes.shape[1],
        domains=domains,
        size_bytes=flow.size_bytes,
        calls=flow.calls,
        price=price,
        seconds=seconds,
        exposed_s=seconds,
    )


def _most_domains(domains: IntArray) -> int:
    """Domains in the group that spans most: domains[group, rank]."""
    in_order = np.sort(domains, axis=1)
    return int((np.diff(in_order, axis=1) != 0).sum(axis=1).max(initial=0)) + 1
