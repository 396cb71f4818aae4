"""A statement as a report: headlines, tables and how they were calculated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gantree.accounting.billing.bill import CPU, GPU, MEMORY, SHARED, SLOWER, STORAGE, Bill
from gantree.accounting.billing.distribution import rounded
from gantree.accounting.billing.statement import WASTED, Figures, Statement, shared_by_cause
from gantree.accounting.usage import ALLOCATED_FOR, NOT_ALLOCATED, WORD_OF
from gantree.cli.report.document import Column, Report, Table

CENT = 10_000
"""Millionths of a dollar."""
JOBS_SHOWN = 25
Job = Mapping[str, Any]
UNNAMED = {
    "queue": "(not distributed)", "user": "(no user)", "project": "(no project)", "model": "(no GPU model)",
    "device": "whole GPUs",
}  # fmt: skip
MEANING = {
    "useful": "computing", "idle": "running, and not computing", "lost": "work that was done again",
    "starting": "from placement until all processes ran", "restart": "stopping, and starting again",
    "checkpoint": "saving before a stop", "unmeasured": "running, with no counters that tell",
    "down": "on nodes that were not usable", "held": "kept for a gang while others stopped",
    "reserved": "kept for promised starts", "stranded": "free, and of a size that nothing can use",
    "free": "ready, and nothing ran there",
}  # fmt: skip
CAUSES = {
    "down": "nodes that were down", "held": "held for gangs while others stopped", "reserved": "promised starts",
    "stranded": "stranded parts", "discounts": "discounts for slower places", "free": "free capacity",
    "idle": "free cores and memory",
}  # fmt: skip
RULES = {
    "weighted": "Shared cost of a GPU model and market is divided among those who held such GPUs in this period, in"
    " proportion to what they paid for them; where nobody held any, among all, by what they paid.",
    "even": "Shared cost is divided evenly among the queues that held GPUs in this period, and within a queue in"
    " proportion to what its users paid.",
    "none": "Shared cost is not divided; it stands as a row of its own, (not distributed).",
}


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs that ended in the period, the largest first; more: how many were not read."""

    rows: Sequence[Job]
    more: bool = False


def report_of(statement: Statement, site: str, period: str, now: float, jobs: Jobs) -> Report:
    """The report. period is its name, as in "November 2026"; site is the cluster's name."""
    whose = f"queue {statement.queue}" if statement.queue else "all queues"
    is_partial = statement.until > now
    upto = f", up to {_day(now)}" if is_partial else ""
    facts = [
        ("Site", site),
        ("For", whose),
        ("Period", f"{_day(statement.since)} to {_day(statement.until - 1)}, days of UTC{upto}"),
        ("Currency", "US dollars"),
        ("Shared cost", f"divided: {statement.bill.rule}"),
    ]
    return Report(
        "Statement of GPU usage",
        f"{whose[0].upper()}{whose[1:]}, {period}",
        now,
        facts,
        list(_headlines(statement)),
        list(_tables(statement, jobs)),
        list(_notes(statement, is_partial=is_partial)),
    )


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def money(cents: int) -> str:
    """Cents as dollars with two decimals: "1,234.50", "-0.07"."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def in_dollars(cents: int) -> str:
    """Cents as an amount of dollars: "$1,234.50", "-$0.07"."""
    return f"{'-' if cents < 0 else ''}${money(abs(cents))}"


def _money(micros: int) -> str:
    return money(round(micros / CENT))


def _hours(hours: float) -> str:
    return f"{hours:,.1f}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def change_text(now: int, before: int | None) -> str:
    """The change since the period before, of amounts in the same unit."""
    if not before:
        return "-" if not now or before is None else "new"
    return f"{(now - before) / abs(before):+.1%}"


def _headlines(statement: Statement) -> Iterator[tuple[str, str]]:
    total, fleet = statement.all, statement.fleet
    yield in_dollars(total_cents(statement)), "total cost"
    change = change_text(total.micros, total.before_micros)
    yield change, f"${_money(total.before_micros or 0)} before"
    yield _hours(total.held_hours), "GPU-hours held"
    yield _share(total.hours["useful"], total.held_hours), "of these useful"
    if statement.queue:
        yield f"${_money(total.wasted_micros)}", "of it for wasted hours"
    else:
        held = sum(fleet[purpose] for purpose in ALLOCATED_FOR)
        yield _share(held, fleet["capacity"]), "of capacity held"


def _tables(statement: Statement, jobs: Jobs) -> Iterator[Table]:
    yield _cost_table(statement)
    yield _purpose_table(statement)
    yield from _shared_table(statement)
    if jobs.rows:
        yield _job_table(statement, jobs)
    yield from _price_table(statement)
    yield from _energy_table(statement)


def row_name(statement: Statement, name: str) -> str:
    """The name of a row, also of what has none."""
    return name or UNNAMED[statement.by]


def _cost_table(statement: Statement) -> Table:
    figures = [each for _, each in statement.rows]
    columns = [
        Column(statement.by.capitalize(), 2.0, is_figure=False),
        Column("GPU-hours"),
        Column("Useful"),
        *(Column(title) for title, charges in _CHARGES if _is_there(statement.all, charges)),
        Column("Total\u00a0$"),
        Column("Before\u00a0$"),
        Column("Change"),
    ]
    charged = _cents(statement)
    totals = [sum(row) for row in zip(*charged, strict=True)]
    before = rounded([each.before_micros or 0 for each in figures], CENT)
    cents = [*charged, totals, before]
    rows: list[tuple[str, ...]] = [
        (
            row_name(statement, name),
            _hours(each.held_hours),
            _share(each.hours["useful"], each.held_hours),
            *(money(column[place]) for column in cents),
            change_text(each.micros, each.before_micros),
        )
        for place, (name, each) in enumerate(statement.rows)
    ]
    total = statement.all
    sums: tuple[str, ...] = (
        "Total",
        _hours(total.held_hours),
        _share(total.hours["useful"], total.held_hours),
        *(money(sum(column)) for column in cents),
        change_text(total.micros, total.before_micros),
    )
    return Table(f"Cost by {statement.by}", columns, rows, sums)


def _cents(statement: Statement) -> list[list[int]]:
    """The cents of each kind of charge, row by row: rounded so that its column adds up."""
    return [
        rounded(
            [sum(figures.micros_of[charge] for charge in charges) for _, figures in statement.rows],
            CENT,
        )
        for _, charges in _CHARGES
        if _is_there(statement.all, charges)
    ]


def total_cents(statement: Statement) -> int:
    """The total of the table: that of its cells, which may be some cents off the exact one."""
    return sum(sum(column) for column in _cents(statement))


_CHARGES = (
    ("GPUs\u00a0$", (GPU,)),
    ("Discount\u00a0$", (SLOWER,)),
    ("Cores, memory\u00a0$", (CPU, MEMORY)),
    ("Storage\u00a0$", (STORAGE,)),
    ("Shared\u00a0$", (SHARED,)),
)


def _is_there(figures: Figures, charges: Sequence[str]) -> bool:
    return charges == (GPU,) or any(figures.micros_of[charge] for charge in charges)


def _purpose_table(statement: Statement) -> Table:
    total = statement.all
    columns = [
        Column("Purpose", 1.0, is_figure=False),
        Column("Meaning", 3.0, is_figure=False),
        Column("GPU-hours"),
        Column("Share"),
    ]
    names: Sequence[str] = ALLOCATED_FOR
    hours: Mapping[str, float] = total.hours
    whole, last = total.held_hours, "All held"
    if not statement.queue:
        names = (*ALLOCATED_FOR, *NOT_ALLOCATED)
        hours, whole, last = statement.fleet, statement.fleet["capacity"], "Capacity"
    rows = [
        (WORD_OF[name], MEANING[name], _hours(hours[name]), _share(hours[name], whole))
        for name in names
        if round(hours[name], 2)
    ]
    wasted = f"{_hours(total.wasted_hours)} GPU-hours were wasted ({', '.join(WASTED)})"
    cost = f"{wasted}; they cost ${_money(total.wasted_micros)} of the GPU charges."
    return Table(
        "What the GPU-hours were for",
        columns,
        rows,
        (last, "", _hours(whole), _share(whole, whole)),
        cost,
    )


def _shared_table(statement: Statement) -> Iterator[Table]:
    of_cause = shared_by_cause(statement.bill, statement.queue)
    if not of_cause:
        return
    cents = rounded(list(of_cause.values()), CENT)
    rows = [(CAUSES[cause], money(each)) for cause, each in zip(of_cause, cents, strict=True)]
    columns = [Column("Cause", is_figure=False), Column("Shared\u00a0$")]
    yield Table("Shared cost by cause", columns, rows, ("Total", money(sum(cents))))


def _job_table(statement: Statement, jobs: Jobs) -> Table:
    USD_of_model = _mean_prices(statement)
    shown = jobs.rows[:JOBS_SHOWN]
    columns = [
        Column("Job", 2.2, is_figure=False),
        Column("User", 1.0, is_figure=False),
        Column("GPUs", 1.3, is_figure=False),
        Column("GPU-hours"),
        Column("Useful"),
        Column("Lost"),
        Column("About\u00a0$"),
        Column("Outcome", 1.0, is_figure=False),
    ]
    rows = []
    for job in shown:
        held = job["held_gpu_s"] / 3600
        useful, price = job.get("useful_gpu_s", 0.0) / 3600, USD_of_model.get(job["gpu_model"])
        rows.append(
            (
                job["name"],
                job["user"],
                f"{job['gpus']} {job['gpu_model']}",
                _hours(held),
                _share(useful, held),
                _hours(job["lost_gpu_s"] / 3600),
                "-" if price is None else money(round(held * price * 100)),
                job["outcome"],
            )
        )
    count = f"{len(jobs.rows):,}{' or more' if jobs.more else ''}"
    which = f"the {len(shown)} largest" if len(jobs.rows) > len(shown) else "all"
    note = f"Of {count} jobs that ended in the period, {which}; each over its life, at the mean price of its model."
    return Table("What ran", columns, rows, None, note)


def _mean_prices(statement: Statement) -> dict[str, float]:
    sums: dict[str, tuple[float, float]] = {}
    for each in statement.prices:
        hours, USD = sums.get(each.quote.gpu, (0.0, 0.0))
        sums[each.quote.gpu] = hours + each.hours, USD + each.hours * each.mean_USD
    return {model: USD / hours for model, (hours, USD) in sums.items()}


def _price_table(statement: Statement) -> Iterator[Table]:
    if not statement.prices:
        return
    columns = [
        Column("GPU model", 1.2, is_figure=False),
        Column("Market", 0.8, is_figure=False),
        Column("$\u00a0an hour"),
        Column("Mean\u00a0$"),
        Column("Date", 0.9, is_figure=False),
        Column("Source", 2.4, is_figure=False),
    ]
    rows = [
        (
            each.quote.gpu,
            each.quote.market.replace("_", " "),
            f"{each.quote.USD_per_hour:,.4f}",
            f"{each.mean_USD:,.4f}",
            each.quote.date,
            ", ".join(filter(None, (each.quote.source, each.quote.region))),
        )
        for each in statement.prices
    ]
    note = "Mean $ is the price of the period, with its windows."
    yield Table("Prices", columns, rows, None, note if statement.tariff.windows else "")


def _energy_table(statement: Statement) -> Iterator[Table]:
    if not statement.energy:
        return
    has_USD = statement.tariff.power.USD_per_kWh is not None
    has_CO2 = statement.tariff.power.gCO2_per_kWh is not None
    columns = [
        Column("GPU model", is_figure=False),
        Column("kWh measured"),
        Column("kWh assumed"),
        *([] if statement.queue else [Column("kWh not held (assumed)")]),
        Column("kWh"),
        *([Column("$\u00a0of energy")] if has_USD else []),
        *([Column("kg CO2")] if has_CO2 else []),
    ]
    rows, sums = [], [0.0] * (len(columns) - 1)
    for each in statement.energy:
        figures = [
            each.measured_kWh,
            each.assumed_kWh,
            *([] if statement.queue else [each.idle_kWh]),
            each.kWh,
            *([each.USD or 0.0] if has_USD else []),
            *([each.kgCO2 or 0.0] if has_CO2 else []),
        ]
        sums = [total + figure for total, figure in zip(sums, figures, strict=True)]
        rows.append((each.model, *(f"{figure:,.1f}" for figure in figures)))
    note = "For information: energy is no charge of its own."
    yield Table("Energy", columns, rows, ("Total", *(f"{each:,.1f}" for each in sums)), note)


def _notes(statement: Statement, *, is_partial: bool) -> Iterator[tuple[str, str]]:
    yield (
        "GPU charges",
        "GPU-hours are GPUs times hours from the placement of a gang until nothing of it is left; a part of a GPU"
        " counts as that part. They cost the price of their GPU model, on the markets on which its nodes were bought,"
        " at that time.",
    )
    yield "Shared cost", RULES[statement.bill.rule]
    if statement.all.micros_of[SLOWER]:
        yield (
            "Discount",
            "A gang whose place was slower than the best for it pays less: the predicted time of a step at its best"
            " place over that at its own. What is discounted is shared cost.",
        )
    yield from _price_notes(statement)
    if statement.energy:
        yield "Energy", _energy_note(statement)
    if is_partial:
        yield "Not final", "The period is not over; amounts grow until it is."
    yield (
        "Rounding",
        "Charges are rounded to cents so that every column and row adds up; the CSV of the same statement is exact.",
    )


def _price_notes(statement: Statement) -> Iterator[tuple[str, str]]:
    tariff = statement.tariff
    if tariff.windows:
        names = ", ".join(window.name for window in tariff.windows)
        yield (
            "Times of day",
            f"Windows with prices of their own: {names}; time zone {tariff.time_zone}. Use that is on record by day"
            " costs the mean price of the day.",
        )
    unpriced = unpriced_text(statement.bill)
    if unpriced:
        yield "Without a price", unpriced


def unpriced_text(bill: Bill) -> str:
    """A sentence on GPU-hours that are not in a bill; "" if all are."""
    parts = [
        f"{_hours(held)} held of {_hours(there)} GPU-hours of {model or 'no named model'}"
        for model, (held, there) in bill.unpriced_hours.items()
        if held or there
    ]
    return (
        f"Not in this bill, since there is no price for them on the market of their nodes: {', '.join(parts)}."
        if parts
        else ""
    )


def _energy_note(statement: Statement) -> str:
    power = statement.tariff.power
    held = f"{power.load:.0%} of its power limit"
    terms = [f"PUE {power.pue:g}"]
    if power.USD_per_kWh is not None:
        terms.append(f"${power.USD_per_kWh:g} for a kWh")
    if power.gCO2_per_kWh is not None:
        terms.append(f"{power.gCO2_per_kWh:g} g of CO2 for a kWh")
    source = f" ({power.source})" if power.source else ""
    measured = sum(each.measured_hours for each in statement.energy)
    held_hours = measured + sum(each.assumed_hours for each in statement.energy)
    share = f"{measured / held_hours:.0%}" if held_hours else "none"
    return (
        f"Measured in {share} of the GPU-hours held, by counters while gangs ran. The rest is an assumption: a GPU that"
        f" is held takes {held}, another {power.idle_load:.1%}; {', '.join(terms)}{source}. CPUs, memory and network"
        " are not in it."
    )
