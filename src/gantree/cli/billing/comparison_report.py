"""Own and rented GPUs beside list prices of clouds, and a bill beside an invoice: as plain values and as lines."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gantree.accounting.billing.cloud_comparison import ModelComparison
from gantree.accounting.billing.reconciliation import Difference
from gantree.cli.output.printing import columns
from gantree.topology.hardware.prices import Quote

DIFFERENCES_SHOWN = 50


def comparison_json(rows: Sequence[ModelComparison]) -> list[dict[str, Any]]:
    """Rows as plain values."""
    return [
        {
            **asdict(row),
            "on_demand_USD": row.on_demand_USD,
            "spot_USD": row.spot_USD,
            "paid_USD_per_held_hour": row.paid_per_held_hour,
            "break_even": row.break_even,
        }
        for row in rows
    ]


def comparison_cells(rows: Sequence[ModelComparison]) -> list[dict[str, Any]]:
    """The same for CSV: of a list price only the dollars an hour."""
    return [dict(_cell_of(*each) for each in row.items()) for row in comparison_json(rows)]


def _cell_of(name: str, value: Any) -> tuple[str, Any]:
    if name in ("on_demand", "spot"):
        return f"{name}_USD_per_hour", None if value is None else value["USD_per_hour"]
    return name, value


def comparison_lines(rows: Sequence[ModelComparison], period: str) -> Iterator[str]:
    """A table, and the prices that it compares with."""
    head = (
        "GPU",
        "HELD h",
        "THERE h",
        "HELD",
        "COST",
        "A HELD HOUR",
        "ON DEMAND",
        "SPOT",
        "BREAK-EVEN",
    )
    cells = [
        (
            row.model or "-",
            f"{row.held_hours:,.1f}",
            f"{row.there_hours:,.1f}",
            _share(row.held_hours / row.there_hours if row.there_hours else None),
            _dollars(row.paid_USD),
            _dollars(row.paid_per_held_hour),
            _dollars(row.on_demand_USD),
            _dollars(row.spot_USD),
            _share(row.break_even),
        )
        for row in rows
    ]
    yield f"{period}: what GPUs cost, held or not, and the held hours at list prices of clouds"
    yield columns(head, cells)
    for row in rows:
        yield from _notes(row)
    yield (
        "Break-even: the share of time that GPUs must be held to cost no more than on demand. List prices are single"
        " quotations; spot hours do not include what interruptions cost."
    )


def _notes(row: ModelComparison) -> Iterator[str]:
    quotes = [each for each in (row.on_demand, row.spot) if each is not None]
    if quotes:
        yield f"{row.model}: {'; '.join(map(_quote, quotes))}"
    if row.own_hours:
        parts = (
            f"depreciation {_dollars(row.depreciation_USD)}, upkeep {_dollars(row.upkeep_USD)}",
            f"power {_dollars(row.power_USD)}",
        )
        yield f"{row.model}: {row.own_hours:,.1f} own GPU-hours cost {', '.join(parts)}"


def _quote(quote: Quote) -> str:
    market = quote.market.replace("_", " ")
    return f"{market} ${quote.USD_per_hour:g} an hour ({quote.source}, {quote.date})"


def _dollars(USD: float | None) -> str:
    return "-" if USD is None else f"{'-' if USD < 0 else ''}${abs(USD):,.2f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def day_text(at: int) -> str:
    """The day of UTC of a moment in seconds since 1970: "2026-11-01"."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def differences_json(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Rows as plain values."""
    return [
        {
            "day": day_text(each.day),
            "name": each.name,
            "bill_gpu_hours": each.bill_hours,
            "invoice_gpu_hours": each.invoice_hours,
            "difference_gpu_hours": each.hours,
            "bill_USD": each.bill_USD,
            "invoice_USD": each.invoice_USD,
            "difference_USD": each.USD,
            "only": each.only or None,
        }
        for each in found
    ]


def differences_lines(found: Sequence[Difference], period: str) -> Iterator[str]:
    """The sums by name, then the days that differ, the largest first."""
    yield f"{period}: the invoice, less the bill of rented capacity"
    head = ("", "BILL h", "INVOICE h", "DIFF h", "BILL", "INVOICE", "DIFF", "ONLY")
    names = dict.fromkeys(each.name for each in found)
    sums = [_summed(name, [each for each in found if each.name == name]) for name in names]
    yield columns(
        head, [*(_cells(each.name, each) for each in sums), _cells("all", _summed("", found))]
    )
    others = [each.name for each in sums if each.only == "invoice" and not each.invoice_hours]
    if others:
        yield (
            f"{', '.join(others)}: charges without GPU-hours. Which of them are GPUs, and of which model, `skus` in the"
            " file of prices says."
        )
    differing = sorted(
        (each for each in found if each.is_significant), key=lambda each: -abs(each.USD)
    )
    if not differing:
        yield "No day differs."
        return
    yield f"{len(differing)} of {len(found)} days and models differ:"
    shown = differing[:DIFFERENCES_SHOWN]
    yield columns(head, [_cells(f"{day_text(each.day)} {each.name}", each) for each in shown])
    if len(differing) > len(shown):
        yield f"and {len(differing) - len(shown)} more; --json and --csv have all"


def _summed(name: str, found: Sequence[Difference]) -> Difference:
    sides = {each.only for each in found}
    return Difference(
        0,
        name,
        sum(each.bill_hours for each in found),
        sum(each.invoice_hours for each in found),
        sum(each.bill_USD for each in found),
        sum(each.invoice_USD for each in found),
        sides.pop() if len(sides) == 1 else "",
    )


def _cells(name: str, each: Difference) -> tuple[str, ...]:
    hours = (each.bill_hours, each.invoice_hours, each.hours)
    USD = (each.bill_USD, each.invoice_USD, each.USD)
    return (name, *(f"{figure:,.1f}" for figure in hours), *map(_dollars, USD), each.only)
