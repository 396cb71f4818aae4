"""What a site pays: prices by GPU model, market and time of day, of CPUs, memory, storage and power; who shares cost.

`topology.hardware.prices` has the prices themselves. A price is never guessed: where there is none, there is no cost.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gantree.model.cluster import Cluster
from gantree.topology.hardware.power import BUSY_SHARE, IDLE_SHARE, limit_W_of
from gantree.topology.hardware.prices import LIST_PRICES, Market, PriceList

Rule = Literal["even", "weighted", "none"]
"""Who pays for what no gang held: each queue the same, each by its cost, or nobody."""

MINUTES_OF_DAY = 1440
QUARTER_S = 900
DAY_S = 86_400
HOURS_OF_YEAR = 8760.0
_THURSDAY = 3
"""The day of the week on which 1970 began; Monday is 0."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time of the week with prices of its own: minutes of the day from begin to end, on days (0 is Monday).

    end at or before begin is on the day after. factor multiplies prices; USD_of_model replaces those of a GPU model.
    """

    name: str
    begin: int
    end: int
    days: frozenset[int] = frozenset(range(7))
    factor: float = 1.0
    USD_of_model: Mapping[str, float] = field(default_factory=dict)

    def has(self, day: int, minute: int) -> bool:
        """Whether a minute of a day of the week, in the site's time, is in it."""
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        if minute >= self.begin:
            return day in self.days
        return minute < self.end and (day - 1) % 7 in self.days


@dataclass(frozen=True, slots=True)
class OwnedCost:
    """What an own GPU with its part of a server costs, in US dollars an hour, by parts."""

    depreciation: float
    upkeep: float
    power: float

    @property
    def USD_per_hour(self) -> float:
        """All of it."""
        return self.depreciation + self.upkeep + self.power


@dataclass(frozen=True, slots=True)
class PowerTerms:
    """What energy costs and emits. load and idle_load are shares of a GPU's power limit; pue: of the building.

    USD_per_kWh and gCO2_per_kWh are None where they are not stated.
    """

    USD_per_kWh: float | None = None
    gCO2_per_kWh: float | None = None
    pue: float = 1.0
    load: float = BUSY_SHARE
    idle_load: float = IDLE_SHARE
    source: str = ""

    def watts(self, model: str, load: float) -> float | None:
        """What a GPU at that share of its limit takes, with the building; None of a GPU whose limit is not known."""
        limit_W = limit_W_of(model)
        return None if limit_W is None else limit_W * load * self.pue


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """US dollars for a GiB and month, and the GiB that each queue has."""

    USD_per_GiB_month: float
    GiB_of_queue: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sku:
    """What a unit on an invoice is: how many GPUs of which model."""

    model: str
    gpus: float


def _utc(at: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices of a site. markets: of the nodes with all these labels; the first that fits counts.

    offset_s gives by how many seconds the site's time is ahead of UTC at a second of UTC. rule is that of shared cost.
    """

    prices: PriceList = LIST_PRICES
    windows: tuple[Window, ...] = ()
    time_zone: str = "UTC"
    offset_s: Callable[[int], int] = _utc
    USD_per_core_hour: float | None = None
    USD_per_GiB_hour: float | None = None
    storage: StoragePrice | None = None
    markets: tuple[tuple[Market, Mapping[str, str]], ...] = ()
    owned: Mapping[str, OwnedCost] = field(default_factory=dict)
    power: PowerTerms = PowerTerms()
    rule: Rule = "weighted"
    skus: Mapping[str, Sku] = field(default_factory=dict)

    def market_of(self, labels: Mapping[str, str], *, is_spot: bool) -> Market:
        """The market of a node."""
        for market, wanted in self.markets:
            if all(labels.get(key) == value for key, value in wanted.items()):
                return market
        return "spot" if is_spot else "on_demand"

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels of nodes by which their market is known."""
        return tuple(dict.fromkeys(key for _, wanted in self.markets for key in wanted))

    def USD_per_hour(self, model: str, market: Market, start: int, width: int) -> float | None:
        """The mean price of a GPU over a span of time; None without a price."""
        quote = self.prices.quote(model, market)
        if quote is None:
            return None
        return self._mean(start, width, quote.USD_per_hour, model)

    def factor(self, start: int, width: int) -> float:
        """The mean factor of the windows over a span of time, for what has no GPU model."""
        return self._mean(start, width, 1.0, None)

    def _mean(self, start: int, width: int, USD: float, model: str | None) -> float:
        if not self.windows:
            return USD
        shares = self.shares_of_windows(start, width)
        return sum(share * _price_in(window, USD, model) for window, share in shares)

    def shares_of_windows(self, start: int, width: int) -> list[tuple[Window | None, float]]:
        """The windows of a span of time, each with its share of it (in quarters of an hour); None: no window."""
        times = range(start, start + max(width, 1), QUARTER_S)
        found = Counter(self._window_at(at) for at in times)
        return [
            (None if place is None else self.windows[place], count / len(times))
            for place, count in found.items()
        ]

    def _window_at(self, at: int) -> int | None:
        local = at + self.offset_s(at)
        day, minute = (local // DAY_S + _THURSDAY) % 7, local % DAY_S // 60
        return next((n for n, each in enumerate(self.windows) if each.has(day, minute)), None)


def _price_in(window: Window | None, USD: float, model: str | None) -> float:
    if window is None:
        return USD
    if model is not None and model in window.USD_of_model:
        return window.USD_of_model[model]
    return USD * window.factor


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one GPU model that are alike by labels: how many GPUs they have. model is "" where it is unknown."""

    model: str
    gpus: int
    is_spot: bool = False
    labels: tuple[tuple[str, str], ...] = ()


def node_groups(cluster: Cluster, label_names: Iterable[str]) -> list[NodeGroup]:
    """The nodes of a site with GPUs, grouped by model, market and these labels, in order."""
    names, gpus_of = tuple(label_names), Counter[NodeGroup]()
    for node in cluster.nodes:
        machine = cluster.machines[node.machine]
        if machine.gpus:
            labels = dict(node.labels)
            known = tuple((name, labels[name]) for name in names if name in labels)
            group = NodeGroup(machine.gpu or "", 0, node.spot is not None, known)
            gpus_of[group] += machine.gpus
    return [
        NodeGroup(each.model, gpus, each.is_spot, each.labels) for each, gpus in gpus_of.items()
    ]


def market_shares(
    groups: Iterable[NodeGroup], tariff: Tariff
) -> dict[str, tuple[tuple[Market, float], ...]]:
    """The markets on which the GPUs of each model are bought, each with its share of them, the largest first."""
    gpus_of: dict[str, Counter[Market]] = {}
    for group in groups:
        market = tariff.market_of(dict(group.labels), is_spot=group.is_spot)
        gpus_of.setdefault(group.model, Counter())[market] += group.gpus
    return {
        model: tuple((market, gpus / counts.total()) for market, gpus in counts.most_common())
        for model, counts in gpus_of.items()
    }
