"""Ways to serve a model on a cluster, cheapest first, each with what limits it; those that do not do, with why.

    GPU models of the cluster  x  shares, MIG profiles, 1 to 8 GPUs  ->  copies of the model that the demand needs

Each way is a job that the search placed on the empty cluster, so `gantree place` accepts it there. Traffic between the
GPUs of a copy is priced where the search put them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from gantree.model.jobs import Job, Role, Slices, TopologySpec
from gantree.model.placements import Placement
from gantree.model.served_models import ServedModel, ServingDemand
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.planning.rightsizing.offers import offers_of
from gantree.planning.rightsizing.serving.devices import Device, devices_of
from gantree.planning.rightsizing.serving.memory import ServingMemory, serving_memory
from gantree.planning.rightsizing.serving.speed import MOST_REQUESTS, CopySpeed
from gantree.text.words import plural
from gantree.topology.cost.pricing import Pricer, ranks_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_PRICES, PriceList
from gantree.topology.occupancy.occupancy import Occupancy

NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class ServingOption:
    """One way: copies of the model, each on a device, each answering at most requests_of_copy at once.

    job places all copies. first_token_s and token_s are those at the demand, tokens_per_s all copies write together.
    limit is what keeps a copy from answering more: memory, bandwidth, compute, traffic or requests (the engine's own);
    of a way that does not do, what it lacks, also room, heads that can be split, or a rate that is known. why_not says
    why a way does not do, "" where it does; figures that were not reached are None, as is a price that is not known.
    """

    device: Device
    memory: ServingMemory
    limit: str
    why_not: str = ""
    copies: int = 0
    requests_of_copy: int = 0
    first_token_s: float | None = None
    token_s: float | None = None
    tokens_per_s: float | None = None
    USD_per_hour: float | None = None
    job: Job | None = None

    @property
    def does(self) -> bool:
        """Whether the demand is met."""
        return not self.why_not

    @property
    def billed_gpus(self) -> float:
        """GPUs that are paid for, parts as parts."""
        return self.copies * self.device.billed


def serving_options(
    model: ServedModel, demand: ServingDemand, fabric: Fabric, prices: PriceList = LIST_PRICES
) -> tuple[ServingOption, ...]:
    """Return all ways, those that meet the demand first: the cheapest first, those without a price behind these."""
    sizing = _Sizing(model, demand, fabric, prices)
    ways = [
        sizing.option(device)
        for gpu, markets in offers_of(fabric).items()
        if gpu is not None
        for device in devices_of(gpu, max(offer.gpus_of_node for offer in markets.values()))
    ]
    return tuple(sorted(ways, key=_order))


def best_of_kind(ways: Sequence[ServingOption]) -> tuple[ServingOption, ...]:
    """What a person reads: of each GPU model the best way of each kind of device, or the nearest of those that fail."""
    first: dict[tuple[str, str], ServingOption] = {}
    useful = {way.device.gpu for way in ways if way.does}
    for way in ways:
        gpu = way.device.gpu
        if way.does or gpu not in useful:
            first.setdefault((gpu, way.device.kind if way.does else ""), way)
    return tuple(first.values())


def _order(way: ServingOption) -> tuple[bool, bool, float, float, float]:
    USD = way.USD_per_hour
    if way.why_not:
        return (True, True, 0.0, -way.memory.cache, 0.0)
    memory_GiB = way.copies * way.device.gpus * way.device.memory_GiB
    return (False, USD is None, USD or 0.0, memory_GiB, way.token_s or 0.0)


@lru_cache(maxsize=2)
def _empty_site(fabric: Fabric) -> tuple[Pricer, Occupancy]:
    """Prices and room of an empty cluster; kept, since the room of a shape is counted once for all models."""
    return Pricer(fabric), Occupancy(fabric)


class _Sizing:
    """One model and demand on one cluster."""

    def __init__(
        self, model: ServedModel, demand: ServingDemand, fabric: Fabric, prices: PriceList
    ) -> None:
        self._model, self._demand, self._fabric, self._prices = model, demand, fabric, prices
        self._pricer, self._empty = _empty_site(fabric)

    def option(self, device: Device) -> ServingOption:
        """The way on a device, or why it does not do."""
        memory = serving_memory(self._model, device, self._demand)
        closed = self._too_small(device, memory)
        if closed is not None:
            return closed
        job, placed = self._placed(device)
        if isinstance(placed, Refused):
            return ServingOption(device, memory, "room", f"{device.words}: {placed.sentence}")
        speed = CopySpeed(self._model, device, self._demand, self._all_reduce_of(placed))
        allowed = speed.most_requests()
        slow = self._too_slow(device, memory, speed, allowed)
        return slow or self._way(device, memory, speed, min(allowed, memory.requests), job)

    def _too_small(self, device: Device, memory: ServingMemory) -> ServingOption | None:
        if self._model.heads is not None and self._model.heads % device.gpus:
            why = f"{device.words}: {self._model.heads} heads cannot be split over {device.gpus}"
            return ServingOption(device, memory, "heads", why)
        if not memory.requests:
            return ServingOption(device, memory, "memory", _too_little(device, memory))
        if not (device.GBps and device.TFLOPS):
            why = f"{device.words}: its memory bandwidth or arithmetic is not known"
            return ServingOption(device, memory, "unknown", why)
        return None

    def _too_slow(
        self, device: Device, memory: ServingMemory, speed: CopySpeed, allowed: int
    ) -> ServingOption | None:
        first, between = speed.first_token, speed.between_tokens(1)
        if first.total > self._demand.first_token_s:
            target = f"the target is {_ms(self._demand.first_token_s)}"
            why = f"{device.words}: the first token takes {_ms(first.total)}, {target}"
            return ServingOption(device, memory, first.limit, why)
        if not allowed:
            target = f"the target is {_ms(self._demand.token_s)}"
            why = f"{device.words}: a token takes {_ms(between.total)} with one request, {target}"
            return ServingOption(device, memory, between.limit, why)
        return None

    def _way(
        self, device: Device, memory: ServingMemory, speed: CopySpeed, most: int, job: Job
    ) -> ServingOption:
        limit = "memory" if most == memory.requests else speed.between_tokens(most + 1).limit
        if most == MOST_REQUESTS:
            limit = "requests"
        copies = ceil(self._demand.requests / most)
        job = _of_copies(job, copies)
        if copies > 1 and isinstance(place(self._empty, job), Refused):
            each = f"each answers {plural(most, 'request')} at once, limited by {limit}"
            why = f"{device.words}: no room for the {copies} copies that are needed; {each}"
            return ServingOption(device, memory, limit, why, copies, most)
        token_s = speed.between_tokens(ceil(self._demand.requests / copies)).total
        quote = self._prices.quote(device.gpu)
        USD = None if quote is None else quote.USD_per_hour * copies * device.billed
        return ServingOption(
            device, memory, limit, "", copies, most, speed.first_token.total, token_s,
            self._demand.requests / token_s,
            USD, job,
        )  # fmt: skip

    def _placed(self, device: Device) -> tuple[Job, Placement | Refused]:
        """One copy on the empty cluster: one of several GPUs over NVLink where that is possible."""
        job = serving_job(self._model.name, device)
        if device.gpus > 1:
            near = replace(job, topology=TopologySpec(slices=(Slices(1, NVLINK),)))
            found = place(self._empty, near)
            if isinstance(found, Placement):
                return near, found
        return job, place(self._empty, job)

    def _all_reduce_of(self, placed: Placement) -> "_PricedAllReduce":
        ranks = ranks_of(self._fabric, placed.members[:1])
        return _PricedAllReduce(self._pricer, ranks)


@dataclass(frozen=True, slots=True)
class _PricedAllReduce:
    """Seconds of an all-reduce over the GPUs of a copy."""

    pricer: Pricer
    ranks: Sequence[tuple[int, int]]

    def __call__(self, size_bytes: float) -> float:
        return self.pricer.price("all_reduce", size_bytes, list(self.ranks)).seconds


def serving_job(name: str, device: Device) -> Job:
    """A job of one copy of a model; members of it send each other nothing."""
    return Job(name, (Role("server", 1, device.shape),), communicates=False)


def _of_copies(job: Job, copies: int) -> Job:
    return replace(job, roles=(replace(job.roles[0], members=copies),))


def _too_little(device: Device, memory: ServingMemory) -> str:
    needs = memory.weights + memory.activations + memory.reserve + memory.request
    parts = (
        f"weights {memory.weights:.1f}, activations {memory.activations:.1f}, reserve {memory.reserve:.1f}, "
        f"one request {memory.request:.1f}"
    )
    each = " on each GPU" if device.gpus > 1 else ""
    return f"{device.words}: needs {needs:.1f} GiB{each} ({parts}), {memory.usable:.1f} are usable"


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{seconds * 1e3:.0f} ms"
