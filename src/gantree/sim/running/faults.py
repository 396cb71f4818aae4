"""What fails on a site, when, and when it is repaired: drawn ahead, whatever is scheduled on it.

Each component draws from a `random.Random` of its own, seeded with the seed of the run and its name, so that equal
seeds give equal failures under every policy. Times between failures are exponential, and so are repair times (the
usual model; Kokolis et al. 2024, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", fit it to
two clusters of Meta). A component that is being repaired does not fail again meanwhile; that a node is lost with its
switch does not keep it from failing by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random

from gantree.sim.running.model import DAY_S, FailureRate, Failures, RunningModel
from gantree.topology.fabric.fabric import Fabric


@dataclass(frozen=True, slots=True)
class Fault:
    """Something happens to a component at a moment. kind is one of

    "process" (software on a GPU), "GPU", "node", "domain", "link", "sign" (a failure of a node is near), "notice" (a
    spot node will be taken), "spot" (it is). domain is (tier, number); of a node or GPU that of the node. up: it is
    repaired, or back. deadline_at is when a spot node is taken after its notice.
    """

    at_s: float
    kind: str
    domain: tuple[int, int]
    gpu: int = 0
    up: bool = False
    health: float = 1.0
    deadline_at: float = 0.0


class Faults:
    """Faults of a site in the order of time, drawn as they are asked for."""

    def __init__(self, model: RunningModel, fabric: Fabric, seed: int, from_s: float) -> None:
        self._heap: list[tuple[float, int, Fault, Iterator[Fault]]] = []
        self._repairs: dict[int, float] = {}
        for number, component in enumerate(_components(model, fabric, seed, from_s)):
            self._draw(number, component)

    def next_moment(self) -> float | None:
        """When the next fault or repair comes, in seconds; None if nothing ever fails."""
        return self._heap[0][0] if self._heap and self._heap[0][0] < inf else None

    def pop(self) -> Fault:
        """The next fault or repair."""
        _, number, fault, component = heappop(self._heap)
        self._draw(number, component)
        return fault

    def repaired_by(self) -> float:
        """The moment by which everything that is broken now will have been repaired; -inf if nothing is."""
        return max((fault.at_s for _, _, fault, _ in self._heap if fault.up), default=-inf)

    def _draw(self, number: int, component: Iterator[Fault]) -> None:
        fault = next(component)
        heappush(self._heap, (fault.at_s, number, fault, component))


def tier_of(name: str, tiers: tuple[str, ...]) -> int:
    """The number of a tier by its name; "switch" is the narrowest above the node, if no tier is called so.

    tiers are those of the fabric, widest first. Raises KeyError for a name that is none of them.
    """
    if name in tiers:
        return tiers.index(name)
    if name == "switch":
        return max(0, len(tiers) - 2)
    raise KeyError(name)


def _components(
    model: RunningModel, fabric: Fabric, seed: int, from_s: float
) -> Iterator[Iterator[Fault]]:
    if model.failures is not None:
        yield from _of_failures(model.failures, fabric, seed, from_s)
    if model.spot is not None:
        tier = fabric.node_tier
        for index, node in enumerate(fabric.nodes):
            if node.spot:
                draws = Random(f"{seed}/spot/{node.name}")  # noqa: S311 - a simulation
                spot = FailureRate(node.spot, model.spot.away_s)
                yield _spot_node(draws, (tier, index), spot, model.spot.notice_s, from_s)


def _of_failures(
    failures: Failures, fabric: Fabric, seed: int, from_s: float
) -> Iterator[Iterator[Fault]]:
    tier = fabric.node_tier
    if failures.process or failures.GPU or failures.node:
        for index, node in enumerate(fabric.nodes):
            draws = Random(f"{seed}/node/{node.name}")  # noqa: S311 - a simulation
            yield _node(draws, (tier, index), failures, int(fabric.gpus_of_node[index]), from_s)
    for kind, rates in (("domain", failures.domains), ("link", failures.links)):
        for name, rate in rates:
            number = tier_of(name, fabric.tiers)
            for domain, path in enumerate(fabric.names_of_domain[number]):
                draws = Random(f"{seed}/{kind}/{name}/{path}")  # noqa: S311 - a simulation
                yield _domain(draws, kind, (number, domain), rate, from_s)


def _node(
    draws: Random, node: tuple[int, int], failures: Failures, gpus: int, from_s: float
) -> Iterator[Fault]:
    """Faults of a node and of what is on it, one after the other."""
    kinds = {"process": failures.process, "GPU": failures.GPU, "node": failures.node}
    rates = [
        (kind, rate, rate.per_day * (1 if kind == "node" else gpus) / DAY_S)
        for kind, rate in kinds.items()
        if rate is not None and rate.per_day > 0 and (gpus or kind == "node")
    ]
    total, now = sum(per_s for _, _, per_s in rates), from_s
    while total > 0:
        since, now = now, now + draws.expovariate(total)
        ((kind, rate, _),) = draws.choices(rates, [per_s for _, _, per_s in rates])
        gpu = draws.randrange(gpus) if gpus else 0
        if _is_announced(rate, node, now):
            yield Fault(max(since, now - (rate.lead_s or 0.0)), "sign", node)
        yield Fault(now, kind, node, gpu)
        if kind != "process":
            now += _drawn(draws, rate.repair_s)
            yield Fault(now, kind, node, gpu, up=True)
    yield from _never(node)


def _is_announced(rate: FailureRate, node: tuple[int, int], at_s: float) -> bool:
    """Whether a failure has a sign before it: drawn by its moment, so that with more signs no failure differs."""
    if not rate.announced:
        return False
    draws = Random(f"{node}/{at_s!r}/sign")  # noqa: S311 - a simulation
    return draws.random() < rate.announced


def _domain(
    draws: Random, kind: str, domain: tuple[int, int], rate: FailureRate, from_s: float
) -> Iterator[Fault]:
    now = from_s
    while rate.per_day > 0:
        now += draws.expovariate(rate.per_day / DAY_S)
        yield Fault(now, kind, domain, health=1.0 if rate.health is None else rate.health)
        now += _drawn(draws, rate.repair_s)
        yield Fault(now, kind, domain, up=True)
    yield from _never(domain)


def _spot_node(
    draws: Random, node: tuple[int, int], rate: FailureRate, notice_s: float, from_s: float
) -> Iterator[Fault]:
    now = from_s
    while True:
        now += draws.expovariate(rate.per_day / DAY_S)
        yield Fault(now, "notice", node, deadline_at=now + notice_s)
        now += notice_s
        yield Fault(now, "spot", node)
        now += _drawn(draws, rate.repair_s)
        yield Fault(now, "spot", node, up=True)


def _drawn(draws: Random, mean_s: float) -> float:
    return draws.expovariate(1 / mean_s) if mean_s > 0 else 0.0


def _never(domain: tuple[int, int]) -> Iterator[Fault]:
    """A component that does not fail."""
    while True:
        yield Fault(inf, "never", domain)
