"""Max-min fair rates of gangs over links that they share, by progressive filling.

The rates of all connections rise together; those of a gang stop when the gang is as fast as it is alone, or when a link
on their way is full (Bertsekas and Gallager, Data Networks, section 6.5.2). Connections are what RDMA and TCP are fair
between: a gang has as many on its busiest link as hops of its groups cross it at one time.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

Link = TypeVar("Link", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Demand(Generic[Link]):
    """What a gang sends over each link, in GB/s, when it has them alone, and over how many connections.

    most is the share of that which it can reach at best (a degraded link on its way).
    """

    GBps_of_link: Mapping[Link, float]
    connections: float = 1.0
    most: float = 1.0

    @property
    def connection_GBps(self) -> float:
        """What one connection carries on the gang's busiest link when it has it alone."""
        return max(self.GBps_of_link.values()) / self.connections


def fair_shares(
    demands: Sequence[Demand[Link]], capacity_GBps: Mapping[Link, float]
) -> list[float]:
    """The share of its demand that each gang gets, from 0 to 1; links without a capacity carry everything.

    Every demand has a link that it sends something over.
    """
    alone = [demand.connection_GBps for demand in demands]
    weights = [
        {link: GBps / rate for link, GBps in demand.GBps_of_link.items() if link in capacity_GBps}
        for demand, rate in zip(demands, alone, strict=True)
    ]
    left = dict(capacity_GBps)
    rising = dict.fromkeys(range(len(demands)))
    rates = [0.0] * len(demands)
    level = 0.0
    while rising:
        load = _load(rising, weights)
        of_gang = {number: demands[number].most * alone[number] for number in rising}
        of_link = {link: level + left[link] / load[link] for link in load}
        next_level = max(level, min((*of_gang.values(), *of_link.values()), default=inf))
        for link, weight in load.items():
            left[link] = max(0.0, left[link] - (next_level - level) * weight)
        level = next_level
        full = {link for link, at in of_link.items() if at <= level}
        for number in list(rising):
            if of_gang[number] <= level or not full.isdisjoint(weights[number]):
                rates[number] = min(level, of_gang[number])
                del rising[number]
    return [rate / one for rate, one in zip(rates, alone, strict=True)]


def _load(rising: Mapping[int, None], weights: Sequence[Mapping[Link, float]]) -> dict[Link, float]:
    """Connections of rising gangs on each link, in units of a connection on the gang's busiest link."""
    load: dict[Link, float] = {}
    for number in rising:
        for link, weight in weights[number].items():
            if weight > 0:
                load[link] = load.get(link, 0.0) + weight
    return load
