"""backfill: arrival order alone, with backfill, and first come first served to whatever fits."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Literal

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.jobs import Job
from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, at_least, at_most
from gantree.sim.experiments.inputs import lingjun
from gantree.sim.experiments.week import week
from gantree.sim.lingjun.philly import gang_of, known_gang_of
from gantree.sim.results import JobRow
from gantree.sim.run import simulate

CROWDED = 58
"""Hosts on which the mean load of the week is 99 %."""

LARGE = 16
"""GPUs of a large job, at least."""

RULES: dict[str, tuple[str, Literal["any", "promised", "none"], bool]] = {
    "none: nobody overtakes": ("backfill", "none", True),
    "backfill, run times known": ("backfill", "promised", True),
    "backfill, run times guessed": ("backfill", "promised", False),
    "any: whatever fits goes": ("backfill", "any", True),
}
"""Rule -> (preset, overtake, whether run times are known)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rule: waits of all and of large jobs in hours, percent of the GPUs busy, makespan in days."""

    rule: str
    wait_h: float
    wait_p99_h: float
    large_wait_h: float
    busy: float
    makespan_d: float


def run_rule(rule: str) -> Row:
    """Run the week under a rule."""
    preset, overtake, known = RULES[rule]
    policy = PRESETS[preset]
    policy = replace(policy, backfill=replace(policy.backfill, overtake=overtake))
    jobs = known_gang_of if known else _guessed
    result = simulate(lingjun(CROWDED), week(), policy, jobs=jobs)
    summary = result.summary()
    large = [row for row in result.jobs if row.gpus >= LARGE]
    return Row(
        rule, summary["wait_s"]["mean"] / 3600, summary["wait_s"]["p99"] / 3600, _mean_wait_h(large),
        _busy_of_week(result.jobs), summary["makespan_s"] / 86_400,
    )  # fmt: skip


def _guessed(row: TraceJob) -> Job:
    """Without run times: the scheduler learns them from jobs that ended."""
    return gang_of(row)


def _mean_wait_h(rows: list[JobRow]) -> float:
    waits_s = [row.wait_s for row in rows if row.wait_s is not None]
    return sum(waits_s) / len(waits_s) / 3600


def _busy_of_week(rows: Sequence[JobRow]) -> float:
    """Percent of the GPU-seconds of the week of arrivals that jobs held: later, the queue is empty."""
    first_s = min(row.submit_s for row in rows)
    last_s = max(row.submit_s for row in rows)
    held = sum(
        row.gpus * max(0.0, min(row.end_s or last_s, last_s) - row.first_start_s)
        for row in rows
        if row.first_start_s is not None and row.first_start_s < last_s
    )
    return 100 * held / (CROWDED * 8 * (last_s - first_s))


def run(bench: Bench) -> Outcome:
    """Run the week under every rule."""
    rows = bench.workers.map(run_rule, list(RULES))
    none, known, _, anything = rows
    return Outcome(
        verdicts=(
            at_least("backfill raises utilisation by 10 points", known.busy - none.busy, 10, " points"),
            at_most("large jobs wait no longer than without", known.large_wait_h / none.large_wait_h, 1, "x"),
            at_least(
                "where whatever fits goes, large jobs wait longer than with backfill",
                anything.large_wait_h / known.large_wait_h, 1, "x",
            ),
        ),
        tables=(
            Table(
                "The week on 58 hosts",
                ("who may overtake", "wait h mean", "p99", f"mean, {LARGE} GPUs or more", "GPUs busy %", "makespan d"),
                tuple(map(astuple, rows)),
            ),
        ),
        plots=(_plot(rows),),
    )  # fmt: skip


def _plot(rows: list[Row]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    bars = [
        {"rule": row.rule, "jobs": jobs, "wait": wait_h}
        for row in rows
        for jobs, wait_h in (("all jobs", row.wait_h), (f"{LARGE} GPUs or more", row.large_wait_h))
    ]
    chart = charts.bars(bars, "rule", "wait", "jobs", y_title="mean wait, hours")
    return Plot("backfill", "Mean wait by who may overtake", charts.to_svg(chart))
