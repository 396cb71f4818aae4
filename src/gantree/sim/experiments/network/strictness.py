"""strictness: required against preferred against none."""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, at_least, at_most
from gantree.sim.experiments.placements import (
    GANTREE,
    Fleet,
    Run,
    geometric_mean,
    result_of,
    stretch_of_job,
)

FLEET = Fleet("v100-100g", "muri-trace3", 8)
MIX = "heavy"
ASKED: dict[str, tuple[str, str] | None] = {
    "none": None,
    "preferred node": ("preferred", "node"),
    "preferred leaf": ("preferred", "leaf"),
    "required leaf": ("required", "leaf"),
    "required spine": ("required", "spine"),
}


@dataclass(frozen=True, slots=True)
class Strict:
    """One wish: mean wait and completion in hours, useful share of capacity, mean stretch, jobs that never ran."""

    wait_h: float
    jct_h: float
    useful: float
    stretch: float
    never: int


def measure(run: Run) -> Strict:
    """Simulate a run."""
    result = result_of(run)
    summary = result.summary()
    return Strict(
        summary["wait_s"]["mean"] / 3600, summary["jct_s"]["mean"] / 3600, summary["goodput"],
        geometric_mean(list(stretch_of_job(result.jobs).values())),
        summary["jobs"] - summary["finished"],
    )  # fmt: skip


def run(bench: Bench) -> Outcome:
    """Run the trace under every wish."""
    seeds = bench.seeds[:2]
    runs = [Run(FLEET, MIX, GANTREE, seed, asked) for asked in ASKED.values() for seed in seeds]
    found = dict(zip(runs, bench.workers.map(measure, runs), strict=True))
    rows = {
        name: _mean([found[Run(FLEET, MIX, GANTREE, seed, asked)] for seed in seeds])
        for name, asked in ASKED.items()
    }
    best = min(rows, key=lambda name: rows[name].jct_h)
    strict, free = rows["required leaf"], rows["none"]
    return Outcome(
        verdicts=(
            at_least("required costs waiting: at least 1.1 times that of none", strict.wait_h / free.wait_h, 1.1, "x"),
            at_most("required makes steps shorter than none", strict.stretch / free.stretch, 1, "x"),
            at_most(
                f"preferred is the best point (best here: {best})",
                rows["preferred leaf"].jct_h / rows[best].jct_h, 1.01, "x of the best completion time",
            ),
        ),
        tables=(
            Table(
                "992 jobs of Philly on 128 V100, heavy mix; every gang asks the same",
                ("asked", "wait h", "completion h", "useful %", "step over ideal", "never ran"),
                tuple(
                    (name, row.wait_h, row.jct_h, 100 * row.useful, row.stretch, row.never)
                    for name, row in rows.items()
                ),
            ),
        ),
        plots=(_plot(rows),),
    )  # fmt: skip


def _mean(found: Sequence[Strict]) -> Strict:
    count = len(found)
    return Strict(
        sum(each.wait_h for each in found) / count,
        sum(each.jct_h for each in found) / count,
        sum(each.useful for each in found) / count,
        geometric_mean([each.stretch for each in found]),
        round(sum(each.never for each in found) / count),
    )


def _plot(rows: dict[str, Strict]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    bars = [
        {"asked": name, "time": what, "hours": hours}
        for name, row in rows.items()
        for what, hours in (("waiting", row.wait_h), ("completion", row.jct_h))
    ]
    chart = charts.bars(bars, "asked", "hours", "time", y_title="mean, hours")
    return Plot(
        "strictness",
        "Waiting and completion by what gangs ask of the topology",
        charts.to_svg(chart),
    )
