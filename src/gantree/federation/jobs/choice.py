"""Which cluster gets a job: the one that starts it first or cheapest, with the move of its data. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from gantree.model.federation import ChooseBy, FederatedCluster, Federation
from gantree.text.words import span

GIB_PER_GB = 1e9 / 2**30


@dataclass(frozen=True, slots=True)
class DataMove:
    """What it takes to have the data of a job in a cluster: seconds, USD, and what comes from where, in words."""

    seconds: float = 0.0
    USD: float = 0.0
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a cluster says of a job, and what moving its data there takes.

    starts_in_s is None where nobody knows when. cost_USD is that of the run there by the cluster's prices (None:
    unknown), without the move. refusal: why it can never start there; "": it can.
    """

    cluster: str
    starts_in_s: float | None
    cost_USD: float | None = None
    move: DataMove = DataMove()
    refusal: str = ""

    @property
    def ready_in_s(self) -> float:
        """Seconds until it runs with its data."""
        return inf if self.starts_in_s is None else self.starts_in_s + self.move.seconds

    @property
    def total_USD(self) -> float:
        """The cost with the move."""
        return inf if self.cost_USD is None else self.cost_USD + self.move.USD

    @property
    def sentence(self) -> str:
        """The figures, for `why`."""
        if self.refusal:
            return f"{self.cluster} cannot start it ({self.refusal})"
        start = "at an unknown time" if self.starts_in_s is None else f"in {span(self.starts_in_s)}"
        parts = [f"{self.cluster} starts it {'at once' if self.starts_in_s == 0 else start}"]
        if self.move.words:
            move = (
                f"{', '.join(self.move.words)}: {span(self.move.seconds)}, {self.move.USD:.2f} USD"
            )
            parts.append(f"moves {move}")
        if self.cost_USD is not None:
            parts.append(f"costs {self.total_USD:.2f} USD")
        return ", ".join(parts)


def move_of(
    federation: Federation, cluster: FederatedCluster, data: Iterable[tuple[str, float]]
) -> DataMove:
    """What it takes to have data sets, (name, GiB) each, in a cluster; each from where that is cheapest, then fastest.

    One that no cluster has costs nothing, and the words say so.
    """
    seconds = USD = 0.0
    words: list[str] = []
    for name, GiB in data:
        if name in cluster.data:
            continue
        regions = {each.region for each in federation.clusters if name in each.data}
        links = [federation.link(region, cluster.region) for region in sorted(regions)]
        if not links:
            words.append(f"{name}, which no cluster has")
            continue
        best = min(links, key=lambda link: (link.USD_per_GiB, -link.bandwidth_GBps))
        seconds += GiB / (best.bandwidth_GBps * GIB_PER_GB)
        USD += GiB * best.USD_per_GiB
        words.append(f"{name} ({GiB:g} GiB) from {best.source}")
    return DataMove(seconds, USD, tuple(words))


def offer_of(
    federation: Federation, cluster: str, data: Iterable[tuple[str, float]], told: Mapping[str, Any]
) -> Offer:
    """The offer of a cluster by its answer to POST /v1/jobs/forecast."""
    at = federation.cluster(cluster)
    forecast, move = told["forecast"], move_of(federation, at, data)
    refused, start, cost = forecast["refused"], forecast["start"], forecast["cost_USD"]
    if refused is not None and refused["never"]:
        return Offer(cluster, None, None, move, refused["sentence"])
    starts_in_s = None if start is None else max(0.0, start["starts_at"] - told["asked_at"])
    if forecast["now"]:
        starts_in_s = 0.0
    return Offer(cluster, starts_in_s, None if cost is None else cost * at.price_factor, move)


def chosen(offers: Sequence[Offer], by: ChooseBy) -> Offer | None:
    """The best offer; of equal ones the first. None where no cluster can ever start it."""
    possible = [offer for offer in offers if not offer.refusal]
    if by is ChooseBy.COST:
        return min(possible, key=lambda each: (each.total_USD, each.ready_in_s), default=None)
    return min(possible, key=lambda each: (each.ready_in_s, each.total_USD), default=None)


def reason_of(offers: Sequence[Offer], best: Offer, by: ChooseBy) -> str:
    """Why it is the best, with the figures of each cluster."""
    rule = "the earliest start" if by is ChooseBy.START else "the lowest cost"
    figures = "; ".join(each.sentence for each in offers)
    return f"{best.cluster} has {rule}: {figures}"
