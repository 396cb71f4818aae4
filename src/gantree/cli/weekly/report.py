"""The report of a week: headlines, days, queues, what was wasted, nodes with signs; beside the week before."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from gantree.accounting.usage import PURPOSES, WORD_OF
from gantree.api.views.accounting.budget_view import budget_in_words
from gantree.cli.output.figures import digits, dollars
from gantree.cli.output.printing import span
from gantree.cli.report.document import Column, Report, Table
from gantree.cli.weekly.figures import DAYS_OF_SIGNS, Figures

Json = dict[str, Any]
NODES_SHOWN = 10
OVERHEAD = ("starting", "restart", "checkpoint")
OF_QUEUES = (
    "Overhead is the time to start, to restart and to save. The median wait is that of the jobs that first started in"
    " the week."
)
NOTES = (
    (
        "Useful, idle, lost",
        "Useful and idle are what the GPUs' counters reported while gangs ran; lost is work that had to be done again."
        " Time without reports is neither useful nor idle. Shares are of what was allocated.",
    ),
    (
        "Wasted",
        "Jobs that were there in the week, each with its whole life: idle GPU-hours, lost ones, and those"
        " that a smaller device would have saved, at the prices of the daemon.",
    ),
    ("Days", "Days are those of UTC; a week begins on Monday (ISO 8601)."),
)


def report_of(figures: Figures) -> Report:
    """The report."""
    week = figures.week
    facts = [("Week", f"{week.name}, {week.days}")]
    if week.until > figures.now:
        upto = datetime.fromtimestamp(figures.now, UTC)
        facts.append(("Counted", f"up to {upto:%Y-%m-%d %H:%M} UTC"))
    parts = (_days, _purposes, _queues, _budgets, _waste, _signs)
    tables = (part(figures) for part in parts)
    return Report(
        title="The week of the fleet",
        subtitle=week.name,
        made_at=figures.now,
        facts=facts,
        headlines=list(_headlines(figures)),
        tables=[table for table in tables if table.rows],
        notes=NOTES,
    )


def _headlines(figures: Figures) -> Iterator[tuple[str, str]]:
    now, before = figures.fleet, figures.fleet_before
    for name in ("useful of allocated", "allocated of all"):
        share = f"{name.split()[0]}_share"
        earlier = before.get(share)
        beside = "" if earlier is None else f" ({_percent(earlier)} before)"
        yield _percent(now.get(share)), f"{name}{beside}"
    yield digits(now.get("idle", 0.0)), "GPU-hours idle"
    yield digits(now.get("lost", 0.0)), "GPU-hours of work done again"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _days(figures: Figures) -> Table:
    columns = (Column("Day", is_figure=False), Column("GPU-hours"), Column("Allocated"), Column("Useful"),
               Column("Idle h"), Column("Lost h"), Column("Down h"))  # fmt: skip
    rows = [
        (day, digits(of["capacity"]), _percent(of["allocated_share"]), _percent(of["useful_share"]),
         digits(of["idle"]), digits(of["lost"]), digits(of["down"]))
        for day, of in figures.days
        if of["capacity"]
    ]  # fmt: skip
    return Table("Day by day", columns, rows)


def _purposes(figures: Figures) -> Table:
    """Every GPU-second has one purpose, so these add up to the capacity."""
    now, before = figures.fleet, figures.fleet_before
    columns = (Column("Purpose", is_figure=False), Column("GPU-hours"), Column("Share"),
               Column("Week before"))  # fmt: skip
    capacity = now.get("capacity", 0.0)
    in_order = sorted(PURPOSES, key=lambda name: -now.get(name, 0.0))
    rows = [
        (
            WORD_OF[name],
            digits(now[name]),
            _percent(now[name] / capacity),
            digits(before.get(name, 0.0)),
        )
        for name in in_order
        if capacity and (now[name] >= 0.05 or before.get(name, 0.0) >= 0.05)
    ]
    total = ("all", digits(capacity), "100%", digits(before.get("capacity", 0.0)))
    return Table("What GPU-hours were for", columns, rows, total)


def _queues(figures: Figures) -> Table:
    columns = (Column("Queue", is_figure=False), Column("GPU-hours"), Column("Useful"), Column("Idle h"),
               Column("Lost h"), Column("Overhead h"), Column("Done"), Column("Failed"), Column("Preempted"),
               Column("Median wait"))  # fmt: skip
    rows = [
        (row["name"] or "-", digits(row["allocated"]), _percent(row["useful_share"]), digits(row["idle"]),
         digits(row["lost"]), digits(sum(row[name] for name in OVERHEAD)), str(row["succeeded"]),
         str(row["failed"] + row["timed_out"]), str(row["preempted"]), _median_wait(figures, row["name"]))
        for row in figures.queues
    ]  # fmt: skip
    return Table("Queues", columns, rows, note=OF_QUEUES)


def _median_wait(figures: Figures, queue: str) -> str:
    p50_s = figures.waits.get(queue, {}).get("p50_s")
    return "-" if p50_s is None else span(p50_s)


def _budgets(figures: Figures) -> Table:
    columns = (
        Column("Queue", is_figure=False),
        Column("Budget", width=3.0, is_figure=False, wraps=True),
    )
    rows = [
        (queue, budget_in_words(budget))
        for queue, budgets in figures.budgets.items()
        for budget in budgets
    ]
    return Table("Budgets now", columns, rows)


def _waste(figures: Figures) -> Table:
    columns = (Column("Job", is_figure=False), Column("Queue", is_figure=False), Column("GPU-hours"), Column("Cost"),
               Column("Why", width=2.0, is_figure=False, wraps=True),
               Column("Remedy", width=2.0, is_figure=False, wraps=True))  # fmt: skip
    rows = [
        (row["name"], row["queue"], digits(row["wasted_gpu_hours"]), dollars(row["USD"]), row["reason"], row["remedy"])
        for row in figures.waste["rows"]
        if row["wasted_gpu_hours"] > 0
    ]  # fmt: skip
    return Table("What was wasted most", columns, rows)


def _signs(figures: Figures) -> Table:
    found = [] if figures.signs is None else figures.signs["rows"]
    columns = (Column("Node", is_figure=False), Column("Days"), Column("Faults"), Column("Out"), Column("Links"),
               Column("Slow ranks"), Column("Lemon", is_figure=False))  # fmt: skip
    rows = [
        (row["node"], *(str(row[name]) for name in ("days", "faults", "out", "links", "slow_ranks")),
         "yes" if row["lemon"] else "")
        for row in found[:NODES_SHOWN]
    ]  # fmt: skip
    return Table(f"Nodes with signs in {DAYS_OF_SIGNS} days", columns, rows)
