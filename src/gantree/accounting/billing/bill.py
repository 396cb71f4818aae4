"""The bill of a period: rows of the book become lines of money.

A gang pays for the GPUs that it held, at the mean price of their model and market in that bucket of the book, less a
discount where its place was slower than the best for it. What nobody held (down, held, reserved, stranded, free) and
the discounts are shared cost, divided by the rule of the tariff. The lines add up to the price of all capacity, to the
millionth of a dollar: amounts are whole numbers of these.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gantree.accounting.billing.distribution import divided, divided_by
from gantree.accounting.billing.tariff import Rule, Tariff
from gantree.accounting.buckets import DAY_S, Bucket
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.topology.hardware.prices import LIST_PRICES, Market

MICROS = 1_000_000
"""Amounts are millionths of a US dollar."""
HOUR_S = 3600.0
GPU, SLOWER, CPU, MEMORY, STORAGE, SHARED = "gpu", "slower", "cpu", "memory", "storage", "shared"
CHARGES = (GPU, SLOWER, CPU, MEMORY, STORAGE, SHARED)
UNIT_OF = {
    GPU: "GPU-Hours", SLOWER: "GPU-Hours", CPU: "Core-Hours", MEMORY: "GiB-Hours", STORAGE: "GiB-Months",
    SHARED: "GPU-Hours",
}  # fmt: skip
CAUSES = ("down", "held", "reserved", "stranded", "discounts", "free")
"""Of shared cost; free is the rest. Shared cost of CPUs and memory is that of `idle`."""
IDLE = "idle"
MONTH_S = 730.5 * HOUR_S
"""A month of storage: a twelfth of 365.25 days."""
Markets = Mapping[str, Sequence[tuple[Market, float]]]


class BookRow(NamedTuple):
    """One row of the book."""

    bucket: Bucket
    key: UsageKey
    amounts: UsageAmounts


class Owner(NamedTuple):
    """Who pays. Nobody ("", "", "") has what is not divided."""

    queue: str = ""
    user: str = ""
    project: str = ""


NOBODY = Owner()


@dataclass(frozen=True, slots=True)
class BillLine:
    """One charge of an owner from since until (seconds since 1970); cause says of what shared cost it is a part.

    quantity is in UNIT_OF the charge. micros are millionths of a US dollar, list_micros the same at on-demand prices
    without windows, None where there is no such price.
    """

    since: int
    until: int
    owner: Owner
    charge: str
    quantity: float
    micros: int
    model: str = ""
    device: str = ""
    market: Market | None = None
    cause: str = ""
    list_micros: int | None = None


class Pool(NamedTuple):
    """What shared cost is of: GPUs of a model on a market, or CPUs or memory (resource) of nodes with that model."""

    resource: str
    model: str
    market: Market | None


@dataclass(frozen=True, slots=True)
class CapacityLine:
    """What there was of a pool from the second since on, at most to the end of that day of UTC, held or not."""

    since: int
    pool: Pool
    hours: float
    micros: int


@dataclass(frozen=True, slots=True)
class Bill:
    """Lines, what there was, and GPU-hours (held, there) of models without a price."""

    since: int
    until: int
    rule: Rule
    lines: tuple[BillLine, ...]
    capacity: tuple[CapacityLine, ...]
    unpriced_hours: Mapping[str, tuple[float, float]]

    @property
    def micros(self) -> int:
        """All lines."""
        return sum(line.micros for line in self.lines)

    @property
    def capacity_micros(self) -> int:
        """All that there was, and storage."""
        stored = sum(line.micros for line in self.lines if line.charge == STORAGE)
        return sum(each.micros for each in self.capacity) + stored


@dataclass(slots=True)
class _Sum:
    hours: float = 0.0
    USD: float = 0.0
    list_USD: float | None = 0.0

    def add(self, hours: float, price: float, list_price: float | None = None) -> None:
        self.hours += hours
        self.USD += hours * price
        if self.list_USD is None or list_price is None:
            self.list_USD = None
        else:
            self.list_USD += hours * list_price


class _LineKey(NamedTuple):
    day: int
    owner: Owner
    pool: Pool
    charge: str
    device: str


class _PoolSums:
    """What of each pool was paid for by its owners, what there is of it, and why the rest was not held."""

    def __init__(self, tariff: Tariff, markets: Markets, since: int, until: int) -> None:
        self._tariff, self._markets = tariff, markets
        self._since, self._until = since, until
        self._price_of = dict[tuple[str, Market, Bucket], float | None]()
        self._list_price_of = dict[str, float | None]()
        self.used = defaultdict[_LineKey, _Sum](_Sum)
        self.capacity = defaultdict[tuple[int, Pool], _Sum](_Sum)
        self.causes = defaultdict[tuple[Pool, str], _Sum](_Sum)
        self.unpriced = defaultdict[str, list[float]](lambda: [0.0, 0.0])

    def add(self, row: BookRow) -> None:
        """Add a row of the book."""
        for market, share in self._markets.get(row.key.model, (("on_demand", 1.0),)):
            self._add_gpus(row, market, share)
        self._add_others(row)

    def _add_gpus(self, row: BookRow, market: Market, share: float) -> None:
        key, amounts = row.key, row.amounts
        held_h, there_h = amounts.allocated_gpu_s / HOUR_S, amounts.capacity_gpu_s / HOUR_S
        price = self._price(key.model, market, row.bucket)
        if price is None:
            unpriced = self.unpriced[key.model]
            unpriced[0] += held_h * share
            unpriced[1] += there_h * share
            return
        listed = self._list_price(key.model)
        pool = Pool(GPU, key.model, market)
        self._use(row, pool, GPU, held_h * share, price, listed)
        self._use(row, pool, SLOWER, -amounts.slower_gpu_s / HOUR_S * share, price, listed)
        if there_h:
            self.capacity[self._day(row), pool].add(there_h * share, price)
        for cause in ("down", "held", "reserved", "stranded"):
            if hours := getattr(amounts, f"{cause}_gpu_s") / HOUR_S * share:
                self.causes[pool, cause].add(hours, price)

    def _price(self, model: str, market: Market, bucket: Bucket) -> float | None:
        key = model, market, bucket
        if key not in self._price_of:
            price = self._tariff.USD_per_hour(model, market, bucket.start, bucket.width)
            self._price_of[key] = price
        return self._price_of[key]

    def _list_price(self, model: str) -> float | None:
        if model not in self._list_price_of:
            quote = self._tariff.prices.quote(model) or LIST_PRICES.quote(model)
            self._list_price_of[model] = None if quote is None else quote.USD_per_hour
        return self._list_price_of[model]

    def _add_others(self, row: BookRow) -> None:
        """CPUs and memory, where they have prices."""
        amounts = row.amounts
        for resource, price, held, there in (
            (CPU, self._tariff.USD_per_core_hour, amounts.cpu_s, amounts.capacity_cpu_s),
            (MEMORY, self._tariff.USD_per_GiB_hour, amounts.memory_GiB_s, amounts.capacity_memory_GiB_s),
        ):  # fmt: skip
            if price is not None and (held or there):
                factor = self._tariff.factor(row.bucket.start, row.bucket.width)
                pool = Pool(resource, row.key.model, None)
                self._use(row, pool, resource, held / HOUR_S, price * factor, price)
                if there:
                    self.capacity[self._day(row), pool].add(there / HOUR_S, price * factor)

    def _use(
        self,
        row: BookRow,
        pool: Pool,
        charge: str,
        hours: float,
        price: float,
        listed: float | None,
    ) -> None:
        if hours:
            key = row.key
            owner = Owner(key.queue, key.user, key.project)
            line = _LineKey(self._day(row), owner, pool, charge, key.device)
            self.used[line].add(hours, price, listed)

    def _day(self, row: BookRow) -> int:
        return max(self._since, row.bucket.start // DAY_S * DAY_S)


def bill(rows: Iterable[BookRow], tariff: Tariff, markets: Markets, since: int, until: int) -> Bill:
    """The bill of the rows of a period; markets: those of each GPU model, each with its share of the GPUs."""
    sums = _PoolSums(tariff, markets, since, until)
    for row in rows:
        sums.add(row)
    lines = [_line(key, each, until) for key, each in sorted(sums.used.items())]
    capacity = tuple(
        CapacityLine(day, pool, each.hours, _micros(each.USD))
        for (day, pool), each in sums.capacity.items()
    )
    storage = _storage(tariff, since, until)
    shared = _shared(sums, lines, capacity, tariff.rule, (since, until))
    unpriced = {model: (held, there) for model, (held, there) in sums.unpriced.items()}
    return Bill(since, until, tariff.rule, (*lines, *storage, *shared), capacity, unpriced)


def _line(key: _LineKey, each: _Sum, until: int) -> BillLine:
    end = min(until, key.day // DAY_S * DAY_S + DAY_S)
    return BillLine(
        key.day,
        end,
        key.owner,
        key.charge,
        each.hours,
        _micros(each.USD),
        key.pool.model,
        key.device,
        key.pool.market,
        list_micros=None if each.list_USD is None else _micros(each.list_USD),
    )


def _micros(USD: float) -> int:
    return round(USD * MICROS)


def _storage(tariff: Tariff, since: int, until: int) -> Iterator[BillLine]:
    if tariff.storage is not None:
        for queue, GiB in tariff.storage.GiB_of_queue.items():
            quantity = GiB * (until - since) / MONTH_S
            micros = _micros(quantity * tariff.storage.USD_per_GiB_month)
            yield BillLine(
                since, until, Owner(queue), STORAGE, quantity, micros, list_micros=micros
            )


def _shared(
    sums: _PoolSums,
    lines: Sequence[BillLine],
    capacity: Sequence[CapacityLine],
    rule: Rule,
    period: tuple[int, int],
) -> Iterator[BillLine]:
    """The cost of each pool that no line has, by cause, divided among owners."""
    weights = _Weights(lines, rule)
    paid = defaultdict[Pool, int](int)
    for line in lines:
        paid[_pool_of(line)] += line.micros
    of_pool = defaultdict[Pool, list[CapacityLine]](list)
    for each in capacity:
        of_pool[each.pool].append(each)
    for pool, parts in of_pool.items():
        total = sum(each.micros for each in parts)
        hours = sum(each.hours for each in parts)
        for cause, micros, amount in _causes(sums, lines, pool, total - paid[pool], hours):
            for owner, part in weights.divide(micros, pool).items():
                quantity = amount * part / micros
                yield BillLine(
                    *period, owner, SHARED, quantity, part, pool.model, "", pool.market, cause
                )


def _pool_of(line: BillLine) -> Pool:
    return Pool(GPU if line.charge == SLOWER else line.charge, line.model, line.market)


def _causes(
    sums: _PoolSums, lines: Sequence[BillLine], pool: Pool, rest: int, hours: float
) -> Iterator[tuple[str, int, float]]:
    """(cause, millionths, hours) of what nobody paid of a pool: what there is, less what was held."""
    of_pool = [line for line in lines if _pool_of(line) == pool]
    free_h = hours - sum(line.quantity for line in of_pool if line.charge != SLOWER)
    if pool.resource != GPU:
        if rest:
            yield IDLE, rest, free_h
        return
    discount = -sum(line.micros for line in of_pool if line.charge == SLOWER)
    sums_of = {cause: sums.causes[pool, cause] for cause in CAUSES[:4]}
    parts = {cause: _micros(each.USD) for cause, each in sums_of.items()}
    for cause, micros in parts.items():
        if micros:
            yield cause, micros, sums_of[cause].hours
    if discount:
        yield "discounts", discount, 0.0
    free = rest - discount - sum(parts.values())
    if free:
        yield "free", free, free_h - sum(each.hours for each in sums_of.values())


class _Weights:
    """Who shares: by cost of GPUs (or CPUs, or memory) of the pool, else of all; or each queue with GPUs alike."""

    def __init__(self, lines: Sequence[BillLine], rule: Rule) -> None:
        self._rule = rule
        self._of_pool = defaultdict[Pool, dict[Owner, float]](dict)
        self._of_all, self._of_gpus = dict[Owner, float](), dict[Owner, float]()
        for line in lines:
            if line.charge != SLOWER and line.micros:
                of_pool = self._of_pool[_pool_of(line)]
                of_pool[line.owner] = of_pool.get(line.owner, 0.0) + line.micros
                self._of_all[line.owner] = self._of_all.get(line.owner, 0.0) + line.micros
                if line.charge == GPU:
                    self._of_gpus[line.owner] = self._of_gpus.get(line.owner, 0.0) + line.micros

    def divide(self, micros: int, pool: Pool) -> dict[Owner, int]:
        """The parts of owners; all of it is nobody's where the rule says so, or where nobody held anything."""
        if not micros:
            return {}
        if self._rule == "none" or not self._of_all:
            return {NOBODY: micros}
        if self._rule == "weighted":
            return divided_by(micros, self._of_pool.get(pool) or self._of_all)
        return dict(self._even(micros))

    def _even(self, micros: int) -> Iterator[tuple[Owner, int]]:
        of_queue = defaultdict[str, dict[Owner, float]](dict)
        for owner, weight in (self._of_gpus or self._of_all).items():
            of_queue[owner.queue][owner] = weight
        parts = divided(micros, [1.0] * len(of_queue))
        for owners, part in zip(of_queue.values(), parts, strict=True):
            yield from divided_by(part, owners).items()
