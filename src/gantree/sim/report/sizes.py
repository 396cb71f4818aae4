"""Jobs by their number of GPUs: distributions of waiting and completion, domains spanned, and a table."""

from gantree.sim.charts import bars, cdf, distribution
from gantree.sim.measures.size_classes import by_class, tallies_of
from gantree.sim.report.document import Section, Table
from gantree.sim.results import Result

SIZE = "size"
TIMES_SHOWN = 2_000
"""Times of one class at most, evenly over the ranks; a chart shows fewer."""


def sizes_section(result: Result) -> Section:
    """Waiting and completion times of the classes."""
    tallies = [tally for tally in tallies_of(result.jobs, len(result.tiers)) if tally.jobs]
    rows = [
        {SIZE: tally.name, "what": what, "time": at}
        for tally in tallies
        for what, times in (("waiting", tally.waits_s), ("completion", tally.jcts_s))
        for at, _ in distribution(times, TIMES_SHOWN)
    ]
    titles = {
        "waiting": "from submission to the first start",
        "completion": "from submission to the end",
    }
    charts = [
        cdf(shown, "time", SIZE, title=what.capitalize(), x_title=title, log_x=True, durations=True)
        for what, title in titles.items()
        if (shown := [row for row in rows if row["what"] == what])
    ]
    head = (
        SIZE, "jobs", "GPU-hours", "mean wait, s", "median", "p99", "mean completion, s", "median", "p99",
    )  # fmt: skip
    table = [
        (row.name, row.jobs, row.gpu_hours, *row.wait_s.values(), *row.jct_s.values())
        for row in by_class(result.jobs, len(result.tiers))
    ]
    notes = [
        "Waiting is over jobs that started, completion over jobs that finished; less than 1 s is drawn as 1 s."
    ]
    return Section("Waiting and completion by size", notes, charts, [Table(head, table)])


def spanned_section(result: Result) -> Section | None:
    """Domains of each tier that gangs of each class spanned; None if there was no gang of two or more members."""
    classes = [
        row for row in by_class(result.jobs, len(result.tiers)) if row.domains[0] is not None
    ]
    if not classes:
        return None
    rows = [
        {SIZE: row.name, "domains": domains, "tier": tier}
        for row in classes
        for tier, domains in zip(result.tiers, row.domains, strict=True)
    ]
    notes = [
        "Mean number of domains that gangs of two or more members spanned in their last attempt."
    ]
    return Section("Tiers spanned by size", notes, [bars(rows, SIZE, "domains", "tier")])
