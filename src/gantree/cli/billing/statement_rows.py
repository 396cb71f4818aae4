"""A statement as plain values, as rows for CSV and Parquet, and as lines for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from gantree.accounting.billing.bill import CHARGES, MICROS
from gantree.accounting.billing.statement import Statement, figures_json, shared_by_cause
from gantree.cli.billing.statement_report import (
    CENT,
    change_text,
    in_dollars,
    row_name,
    unpriced_text,
)
from gantree.cli.output.printing import columns

_PURPOSES = (
    "useful", "idle", "lost", "starting", "restart", "checkpoint", "unmeasured",
)  # fmt: skip
HEAD = (
    "GPU-HOURS", "USEFUL", "WASTED", "GPUS", "DISCOUNT", "OTHER", "SHARED", "TOTAL", "BEFORE", "CHANGE",
)  # fmt: skip
FIGURES = (
    "held_gpu_hours",
    *(f"{purpose}_gpu_hours" for purpose in _PURPOSES),
    "wasted_gpu_hours",
    *(f"{charge}_USD" for charge in CHARGES),
    "USD",
    "wasted_USD",
    "before_USD",
)
TYPES: Mapping[str, str] = {
    "period": "VARCHAR", "by": "VARCHAR", "name": "VARCHAR", **dict.fromkeys(FIGURES, "DOUBLE"),
}  # fmt: skip
"""Columns of CSV and Parquet, with their types of SQL."""


def table_rows(statement: Statement, period: str) -> Iterator[tuple[object, ...]]:
    """A row for each name, in the columns of TYPES."""
    for name, figures in statement.rows:
        values = figures_json(figures)
        cells = ["" if values[figure] is None else values[figure] for figure in FIGURES]
        yield (period, statement.by, row_name(statement, name), *cells)


def statement_json(statement: Statement, period: str, site: str) -> dict[str, Any]:
    """The statement as plain values: GPU-hours and US dollars."""
    bill, power = statement.bill, statement.tariff.power
    return {
        "site": site,
        "queue": statement.queue,
        "period": period,
        "since": statement.since,
        "until": statement.until,
        "by": statement.by,
        "rows": [{"name": name, **figures_json(each)} for name, each in statement.rows],
        "sum": figures_json(statement.all),
        "fleet_gpu_hours": dict(statement.fleet),
        "shared_cost": bill.rule,
        "shared_USD_of_cause": {
            cause: micros / MICROS
            for cause, micros in shared_by_cause(bill, statement.queue).items()
        },
        "capacity_USD": bill.capacity_micros / MICROS,
        "unpriced_gpu_hours": {model: held for model, (held, _) in bill.unpriced_hours.items()},
        "prices": [
            {"gpu": each.quote.gpu, "market": each.quote.market, "USD_per_hour": each.quote.USD_per_hour,
             "mean_USD_per_hour": each.mean_USD, "gpu_hours": each.hours, "date": each.quote.date,
             "source": each.quote.source, "region": each.quote.region}
            for each in statement.prices
        ],
        "energy": [
            {"gpu": each.model, "held_kWh": each.held_kWh, "measured_kWh": each.measured_kWh,
             "assumed_kWh": each.assumed_kWh, "measured_gpu_hours": each.measured_hours,
             "assumed_gpu_hours": each.assumed_hours, "idle_kWh": each.idle_kWh, "kWh": each.kWh, "USD": each.USD,
             "kgCO2": each.kgCO2}
            for each in statement.energy
        ],
        "energy_assumes": {"load": power.load, "idle_load": power.idle_load, "pue": power.pue},
    }  # fmt: skip


def statement_lines(statement: Statement, period: str) -> Iterator[str]:
    """A table of the rows, and what a reader must know of it."""
    head = (statement.by.upper(), *HEAD)
    every = [*statement.rows, (None, statement.all)]
    rows = []
    for name, each in every:
        of = each.micros_of
        other = of["cpu"] + of["memory"] + of["storage"]
        amounts = (
            of["gpu"],
            of["slower"],
            other,
            of["shared"],
            each.micros,
            each.before_micros or 0,
        )
        rows.append(
            (
                "all" if name is None else row_name(statement, name),
                f"{each.held_hours:,.1f}",
                "-" if each.useful_share is None else f"{each.useful_share:.0%}",
                f"{each.wasted_hours:,.1f}",
                *(in_dollars(round(amount / CENT)) for amount in amounts),
                change_text(each.micros, each.before_micros),
            )
        )
    yield f"{period}, shared cost {statement.bill.rule}"
    yield columns(head, rows)
    unpriced = unpriced_text(statement.bill)
    if unpriced:
        yield unpriced
