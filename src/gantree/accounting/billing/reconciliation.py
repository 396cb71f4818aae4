"""Compares a bill with an invoice: GPU-hours and dollars by GPU model and day, and what only one of them has."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from gantree.accounting.billing.bill import GPU, MICROS, Bill
from gantree.accounting.buckets import DAY_S

SIGNIFICANT_USD = 0.005
SIGNIFICANT_HOURS = 0.005
Only = Literal["bill", "invoice", ""]


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """A charge of an invoice from since until, in seconds since 1970.

    model is the GPU model of its SKU, "" for what is no GPU; hours are GPU-hours, None where it states no quantity.
    """

    since: int
    until: int
    model: str
    sku: str
    hours: float | None
    USD: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One model (or, of what is no GPU, one SKU) on one day of UTC. only: which side alone has it."""

    day: int
    name: str
    bill_hours: float
    invoice_hours: float
    bill_USD: float
    invoice_USD: float
    only: Only

    @property
    def hours(self) -> float:
        """The invoice's, less the bill's."""
        return self.invoice_hours - self.bill_hours

    @property
    def USD(self) -> float:
        """The invoice's, less the bill's."""
        return self.invoice_USD - self.bill_USD

    @property
    def is_significant(self) -> bool:
        """Whether the sides differ by more than rounding."""
        return abs(self.USD) > SIGNIFICANT_USD or abs(self.hours) > SIGNIFICANT_HOURS


def reconciled(bill: Bill, invoice: Iterable[InvoiceLine]) -> list[Difference]:
    """Every model and day that the bill of rented capacity, or the invoice within its period, has; by day and name.

    A provider charges for what there is, held or not, so capacity is compared; own GPUs are on no invoice.
    """
    ours, theirs = _of_bill(bill), _of_invoice(invoice, bill.since, bill.until)
    found = []
    for day, name in sorted({*ours, *theirs}):
        bill_hours, bill_USD = ours.get((day, name), (0.0, 0.0))
        invoice_hours, invoice_USD = theirs.get((day, name), (0.0, 0.0))
        only: Only = "" if (day, name) in ours and (day, name) in theirs else "invoice"
        only = "bill" if (day, name) not in theirs else only
        found.append(Difference(day, name, bill_hours, invoice_hours, bill_USD, invoice_USD, only))
    return found


_Sums = dict[tuple[int, str], tuple[float, float]]


def _of_bill(bill: Bill) -> _Sums:
    sums: _Sums = {}
    for line in bill.capacity:
        if line.pool.resource == GPU and line.pool.market != "owned":
            key = line.since // DAY_S * DAY_S, line.pool.model
            hours, USD = sums.get(key, (0.0, 0.0))
            sums[key] = hours + line.hours, USD + line.micros / MICROS
    return sums


def _of_invoice(invoice: Iterable[InvoiceLine], since: int, until: int) -> _Sums:
    sums = defaultdict[tuple[int, str], list[float]](lambda: [0.0, 0.0])
    for line in invoice:
        for day, share in _days(line):
            if since // DAY_S * DAY_S <= day < until:
                of_day = sums[day, line.model or line.sku]
                of_day[0] += (line.hours or 0.0) * share
                of_day[1] += line.USD * share
    return {key: (hours, USD) for key, (hours, USD) in sums.items()}


def _days(line: InvoiceLine) -> Iterator[tuple[int, float]]:
    """The days of a charge, each with its share of its time."""
    first = line.since // DAY_S * DAY_S
    if line.until <= first + DAY_S:
        yield first, 1.0
        return
    for day in range(first, line.until, DAY_S):
        seconds = min(day + DAY_S, line.until) - max(day, line.since)
        yield day, seconds / (line.until - line.since)
