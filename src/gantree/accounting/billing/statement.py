"""A statement of a period: figures by queue, user, project, model or device, beside those of the period before.

Of one queue with all below it, or of all. It has what a reader needs to check it: what was used and for what purpose,
each charge, the rule by which shared cost was divided, and the prices. How it looks is no part of it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Literal

from gantree.accounting.billing.bill import (
    CHARGES,
    GPU,
    HOUR_S,
    MICROS,
    SHARED,
    Bill,
    BillLine,
    BookRow,
    Owner,
)
from gantree.accounting.billing.energy import Energy, energy_of
from gantree.accounting.billing.tariff import Tariff
from gantree.accounting.usage import ALLOCATED_FOR, NOT_ALLOCATED, UsageAmounts, UsageKey
from gantree.model.access import is_within
from gantree.topology.hardware.prices import Market, Quote

By = Literal["queue", "user", "project", "model", "device"]
WASTED = ("idle", "lost", "restart")
"""Purposes of GPU-hours that nobody wanted: held and not computing, done again, stopping and starting again."""

COUNTED = tuple(one.name for one in fields(UsageAmounts) if one.name.endswith("_gpu_s"))


@dataclass(slots=True)
class Figures:
    """GPU-hours by purpose, and millionths of a dollar by charge; wasted_micros are in those of `gpu`."""

    hours: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    micros_of: Counter[str] = field(default_factory=Counter)
    wasted_micros: int = 0
    before_micros: int | None = None

    @property
    def held_hours(self) -> float:
        """All that gangs held."""
        return sum(self.hours[purpose] for purpose in ALLOCATED_FOR)

    @property
    def wasted_hours(self) -> float:
        """Of these, those of WASTED purposes."""
        return sum(self.hours[purpose] for purpose in WASTED)

    @property
    def micros(self) -> int:
        """All charges."""
        return self.micros_of.total()

    @property
    def useful_share(self) -> float | None:
        """Useful hours of those held."""
        return self.hours["useful"] / self.held_hours if self.held_hours else None

    def add(self, other: "Figures") -> None:
        """Add the figures of another row."""
        _add(self.hours, other.hours)
        self.micros_of.update(other.micros_of)
        self.wasted_micros += other.wasted_micros
        if other.before_micros is not None:
            self.before_micros = (self.before_micros or 0) + other.before_micros


@dataclass(frozen=True, slots=True)
class PriceUsed:
    """A price of the bill: the list or the site's own, what the hours of the period came to, and of how many."""

    quote: Quote
    hours: float
    mean_USD: float


@dataclass(frozen=True, slots=True)
class Statement:
    """rows are by name, the largest first, all their sum. fleet are hours of the whole site, by purpose.

    queue is that of whom it is, "" for all.
    """

    queue: str
    by: By
    since: int
    until: int
    rows: Sequence[tuple[str, Figures]]
    all: Figures
    fleet: Mapping[str, float]
    prices: Sequence[PriceUsed]
    energy: Sequence[Energy]
    bill: Bill
    tariff: Tariff


def statement(
    rows: Sequence[BookRow],
    bill: Bill,
    tariff: Tariff,
    by: By,
    queue: str = "",
    before: Bill | None = None,
) -> Statement:
    """The statement of a queue with all below it ("": of all); before: the bill of the period before."""
    of_name = defaultdict[str, Figures](Figures)
    used = _by_key(rows)
    own = {key: amounts for key, amounts in used.items() if _is_in(key.queue, queue)}
    for key, amounts in own.items():
        if key.queue:
            _add(of_name[_name(by, key)].hours, _hours(amounts, ALLOCATED_FOR))
    _add_money(of_name, bill, by, queue, own)
    if before is not None:
        for figures in of_name.values():
            figures.before_micros = 0
        for line in _lines(before, queue):
            figures = of_name[_name(by, line)]
            figures.before_micros = (figures.before_micros or 0) + line.micros
    kept = {name: each for name, each in of_name.items() if _is_something(each)}
    total = Figures(before_micros=None if before is None else 0)
    for figures in kept.values():
        total.add(figures)
    return Statement(
        queue,
        by,
        bill.since,
        bill.until,
        sorted(kept.items(), key=lambda each: (-each[1].micros, each[0])),
        total,
        _hours(_sum(used.values()), (*ALLOCATED_FOR, *NOT_ALLOCATED, "capacity")),
        list(_prices(bill, tariff)),
        energy_of((row for row in rows if row.key in own), tariff.power),
        bill,
        tariff,
    )


def _by_key(rows: Iterable[BookRow]) -> dict[UsageKey, UsageAmounts]:
    """The GPU-seconds of each key over the period."""
    of_key = defaultdict[UsageKey, list[UsageAmounts]](list)
    for row in rows:
        of_key[row.key].append(row.amounts)
    return {key: _sum(amounts) for key, amounts in of_key.items()}


def _sum(amounts: Collection[UsageAmounts]) -> UsageAmounts:
    """The GPU-seconds of all amounts. What is free follows from the sum of a whole site alone."""
    total = UsageAmounts()
    for name in COUNTED:
        setattr(total, name, sum(map(attrgetter(name), amounts), 0.0))
    return total


def _is_in(queue: str, wanted: str) -> bool:
    return not wanted or (queue != "" and is_within(queue, wanted))


def _lines(bill: Bill, queue: str) -> Iterator[BillLine]:
    return (line for line in bill.lines if _is_in(line.owner.queue, queue))


def _name(by: By, what: UsageKey | BillLine) -> str:
    if by in ("model", "device"):
        return str(getattr(what, by))
    owner = what.owner if isinstance(what, BillLine) else what
    return str(getattr(owner, by))


def _hours(amounts: UsageAmounts, purposes: Iterable[str]) -> dict[str, float]:
    return {purpose: getattr(amounts, f"{purpose}_gpu_s") / HOUR_S for purpose in purposes}


def _add(to: defaultdict[str, float], hours: Mapping[str, float]) -> None:
    for purpose, each in hours.items():
        to[purpose] += each


def _add_money(
    of_name: Mapping[str, Figures],
    bill: Bill,
    by: By,
    queue: str,
    used: Mapping[UsageKey, UsageAmounts],
) -> None:
    """Add charges, and what of them was for wasted hours, at the mean price of each owner and model."""
    paid = defaultdict[tuple[str, Owner, str], list[float]](lambda: [0.0, 0.0])
    for line in _lines(bill, queue):
        name = _name(by, line)
        of_name[name].micros_of[line.charge] += line.micros
        if line.charge == GPU:
            sums = paid[name, line.owner, line.model]
            sums[0] += line.micros
            sums[1] += line.quantity
    wasted = defaultdict[tuple[str, Owner, str], float](float)
    for key, amounts in used.items():
        owner = Owner(key.queue, key.user, key.project)
        hours = _hours(amounts, WASTED)
        wasted[_name(by, key), owner, key.model] += sum(hours.values())
    for (name, owner, model), hours_wasted in wasted.items():
        micros, held = paid.get((name, owner, model), (0.0, 0.0))
        if held and hours_wasted:
            of_name[name].wasted_micros += round(micros * hours_wasted / held)


def _is_something(figures: Figures) -> bool:
    return bool(figures.micros or figures.before_micros or figures.held_hours)


def _prices(bill: Bill, tariff: Tariff) -> Iterator[PriceUsed]:
    sums = defaultdict[tuple[str, Market], list[float]](lambda: [0.0, 0.0])
    for line in bill.capacity:
        market = line.pool.market
        if line.pool.resource == GPU and market is not None:
            of_pool = sums[line.pool.model, market]
            of_pool[0] += line.hours
            of_pool[1] += line.micros / MICROS
    for (model, market), (hours, USD) in sorted(sums.items()):
        quote = tariff.prices.quote(model, market)
        if quote is not None and hours:
            yield PriceUsed(quote, hours, USD / hours)


def figures_json(figures: Figures) -> dict[str, object]:
    """A row as plain values: GPU-hours by purpose, US dollars by charge."""
    return {
        **{f"{purpose}_gpu_hours": figures.hours[purpose] for purpose in ALLOCATED_FOR},
        "held_gpu_hours": figures.held_hours,
        "wasted_gpu_hours": figures.wasted_hours,
        **{f"{charge}_USD": figures.micros_of[charge] / MICROS for charge in CHARGES},
        "USD": figures.micros / MICROS,
        "wasted_USD": figures.wasted_micros / MICROS,
        "before_USD": None if figures.before_micros is None else figures.before_micros / MICROS,
    }


def shared_by_cause(bill: Bill, queue: str) -> dict[str, int]:
    """Millionths of a dollar of shared cost that a queue with all below it has, by cause, the largest first."""
    sums = Counter[str]()
    for line in _lines(bill, queue):
        if line.charge == SHARED:
            sums[line.cause] += line.micros
    return dict(sums.most_common())
