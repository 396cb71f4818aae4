"""Steps of asynchronous training with parameter servers, at a placement of workers and servers.

Each worker computes a step, then sends its gradients, in equal parts to all servers, and gets the parameters back the
same way; the links are full duplex and loaded alike in both directions, so one direction is priced. A worker does not
wait for others, and exchanges one step while it computes the next: its step takes the longer of the two. Connections of
workers to servers share NICs of nodes and up-links of leaves and spines by max-min fairness.
"""

from collections.abc import Hashable, Mapping, Sequence
from math import erf, inf, sqrt

from gantree.sim.running.fair_rates import Demand, fair_shares
from gantree.topology.fabric.fabric import Fabric

NIC = "nic"
GB = 1e9


def worker_GBps(fabric: Fabric, workers: Sequence[int], servers: Sequence[int]) -> list[float]:
    """Return the rate in GB/s at which each worker sends; workers and servers are node indices, one entry each.

    A worker sends evenly to all servers, so the slowest of its connections sets its rate. inf: all servers
    are on its node.
    """
    capacity = _capacities(fabric)
    pairs = [(worker, server) for worker in range(len(workers)) for server in range(len(servers))]
    ways = [_way(fabric, workers[worker], servers[server]) for worker, server in pairs]
    rates = iter(_rates(ways, capacity))
    return [len(servers) * min(next(rates) for _ in servers) for _ in workers]


def _capacities(fabric: Fabric) -> dict[Hashable, float]:
    """GB/s of NICs of nodes and of up-links of domains, in each direction."""
    found: dict[Hashable, float] = {}
    for node in range(len(fabric.cluster.nodes)):
        for way in ("out", "in"):
            found[NIC, node, way] = nic_GBps(fabric)
    for tier, number, uplink_GBps in _uplinks(fabric):
        found |= {(tier, number, way): uplink_GBps for way in ("out", "in")}
    return found


def nic_GBps(fabric: Fabric) -> float:
    """Return what a node sends to others at most: the link of the narrowest tier above it."""
    return fabric.cluster.links[fabric.cluster.tiers[-2]].bandwidth_GBps


def _uplinks(fabric: Fabric) -> list[tuple[str, int, float]]:
    """(tier, domain, GB/s) of all up-links with a capacity."""
    cluster = fabric.cluster
    found = []
    for place, tier in enumerate(fabric.tiers):
        link = cluster.links.get(tier)
        if link is not None and link.uplink_GBps is not None:
            domains = {int(number) for number in fabric.domain_of_node[place]}
            found += [(tier, number, link.uplink_GBps) for number in sorted(domains)]
    return found


def _way(fabric: Fabric, sender: int, receiver: int) -> list[Hashable]:
    """The links from a node to another; none within a node."""
    if sender == receiver:
        return []
    way: list[Hashable] = [(NIC, sender, "out"), (NIC, receiver, "in")]
    for place, tier in enumerate(fabric.tiers):
        if tier in fabric.cluster.links:
            one, other = (int(fabric.domain_of_node[place][node]) for node in (sender, receiver))
            if one != other:
                way += [(tier, one, "out"), (tier, other, "in")]
    return way


def _rates(ways: Sequence[Sequence[Hashable]], capacity: Mapping[Hashable, float]) -> list[float]:
    """GB/s of each connection; inf of one that crosses no link."""
    fastest = max(capacity.values())
    crossing = [way for way in ways if way]
    demands = [Demand(dict.fromkeys(way, fastest)) for way in crossing]
    shares = iter(fair_shares(demands, capacity)) if demands else iter(())
    return [next(shares) * fastest if way else inf for way in ways]


def expected_slowest(count: int, steps: int = 2_000) -> float:
    """Return the mean of the largest of so many standard normal draws, by integrating 1 - F^n (trapezoids)."""
    width = 16 / steps
    values = [-8 + width * place for place in range(steps + 1)]
    below = [((1 + erf(value / sqrt(2))) / 2) ** count for value in values]
    area = width * (sum(below) - (below[0] + below[-1]) / 2)
    return 8 - area


def async_step_s(compute_s: float, data_bytes: float, rate_GBps: float) -> float:
    """Return seconds of a step of one worker: the longer of computing and exchanging."""
    return max(compute_s, data_bytes / GB / rate_GBps)
