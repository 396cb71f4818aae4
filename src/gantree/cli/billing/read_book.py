"""Reads the book of a month from the daemon, with prices, and makes the bill of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gantree.accounting.billing.bill import Bill, BookRow, Markets, bill
from gantree.accounting.billing.tariff import NodeGroup, Tariff, market_shares
from gantree.accounting.buckets import Bucket
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.api.client.client import Client
from gantree.cli.billing.months import Month
from gantree.cli.billing.statement_report import Jobs
from gantree.formats.prices.reader import PricesFile

Json = Mapping[str, Any]
_FIGURES = tuple(each.name for each in fields(UsageAmounts))
PAGE, MOST_PAGES = 1000, 20
"""Ended jobs of one answer, and answers that are read."""


@dataclass(frozen=True, slots=True)
class PricedMonth:
    """A month's rows and its bill. site is the cluster's name, now the daemon's time."""

    month: Month
    rows: Sequence[BookRow]
    bill: Bill
    tariff: Tariff
    markets: Markets
    site: str
    now: float


def priced_month(daemon: Client, month: Month, prices: PricesFile | None) -> PricedMonth:
    """The month at these prices, by default at those of the daemon. Raises GantreeError."""
    step, labels = None, tuple[str, ...]()
    if prices is not None:
        step, labels = _step(prices.tariff), prices.tariff.label_names
    answer = daemon.book(month.since, month.until, step=step, label=labels)
    tariff = _tariff(answer, prices)
    rows = [_row(row) for row in answer["rows"]]
    groups = [
        NodeGroup(each["model"], each["gpus"], each["is_spot"], tuple(each["labels"].items()))
        for each in answer["nodes"]
    ]
    markets = market_shares(groups, tariff)
    made = bill(rows, tariff, markets, month.since, month.until)
    return PricedMonth(month, rows, made, tariff, markets, answer["site"], answer["now"])


def _step(tariff: Tariff) -> str:
    return "hour" if tariff.windows else "day"


def _tariff(answer: Json, prices: PricesFile | None) -> Tariff:
    file = answer["prices"]
    if prices is not None:
        return prices.tariff
    return Tariff() if file is None else PricesFile.read(file["text"], file["source"]).tariff


def _row(row: Json) -> BookRow:
    """A row of the answer; amounts that this version does not know are left out."""
    amounts = UsageAmounts(**{name: row[name] for name in _FIGURES if name in row})
    key = UsageKey(row["queue"], row["user"], row["model"], row["project"], row["device"])
    return BookRow(Bucket(row["width"], row["start"]), key, amounts)


def ended_jobs(daemon: Client, month: Month, queue: str) -> Jobs:
    """The jobs that ended in a month, those that held most first; of very many those that ended last."""
    rows, before = list[Json](), None
    for _ in range(MOST_PAGES):
        answer = daemon.ended_jobs(
            queue=queue or None, since=month.since, until=month.until, before=before, limit=PAGE
        )
        rows += answer["jobs"]
        before = answer["next"]
        if before is None:
            break
    held = [row for row in rows if row["held_gpu_s"]]
    held.sort(key=lambda row: (-row["held_gpu_s"], row["job"]))
    return Jobs(held, more=before is not None)
