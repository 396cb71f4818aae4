"""autoscaling: what an autoscaled service leaves to training, and what a prediction from the hour of the week is worth.

The runs are in `valleys`.
"""

from collections.abc import Sequence
from dataclasses import replace

from gantree.sim.experiments.experiment import (
    Bench,
    Cell,
    Outcome,
    Plot,
    Table,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.sharing.valleys import (
    DAYS,
    GPUS,
    LOADS,
    OWNED,
    SIZES,
    Filled,
    Foretold,
    Served,
    Valley,
    fill,
    foretell,
    rules,
)

USUAL = Valley("unused for 15 min", 0)
"""What is compared with one thing changed."""
TRADES = tuple((target, spare) for target in (0.6, 0.7, 0.8, 0.9, 1.0) for spare in (0, 2))
LARGEST = tuple(size for size in (8, 16, 32) if size in SIZES)
STARTS_S = (60.0, 300.0)
"""From the start of a replica until it is ready, where it is predicted."""


def run(bench: Bench) -> Outcome:
    """Run all rules and sizes of gangs with every seed; targets, spare replicas and predictions with the first."""
    by_rule = _grouped(bench, {rule: replace(USUAL, rule=rule) for rule in rules()})
    by_size = _grouped(bench, {f"{size} GPUs": replace(USUAL, largest=size) for size in LARGEST})
    first = bench.seeds[0]
    traded = [replace(USUAL, seed=first, target=target, spare=spare) for target, spare in TRADES]
    trades = list(zip(traded, bench.workers.map(fill, traded), strict=True))
    foretold = [
        Foretold(load, start_s, predict, first)
        for load in LOADS
        for start_s in STARTS_S
        for predict in (False, True)
    ]
    weeks = dict(zip(foretold, bench.workers.map(foretell, foretold), strict=True))
    usual = by_rule[USUAL.rule]
    cosine = [weeks[Foretold("cosine", STARTS_S[0], predict, first)] for predict in (False, True)]
    return Outcome(
        verdicts=(
            at_least(
                "training takes 80 % of what serving leaves idle of its guarantee (gangs of up to 16 GPUs)",
                100 * mean([each.soaked for each in usual]), 80, " %",
            ),
            at_most(
                "at most 1 % of the requests find all replicas full",
                100 * mean([each.late for each in usual]), 1, " %",
            ),
            at_most(
                "a prediction costs no GPU-hours where load rises slowly, times",
                cosine[1].held / cosine[0].held, 1.01, "",
                "it follows last week's days, and today may have fewer requests",
            ),
        ),
        tables=(
            _table("serving lends", by_rule),
            _table("largest gangs of training", by_size),
            _trade_table(trades),
            _week_table(weeks),
        ),
        plots=(_plot(trades),),
    )  # fmt: skip


def _grouped(bench: Bench, cases: dict[str, Valley]) -> dict[str, list[Filled]]:
    """Runs of each case with every seed."""
    seeded = [replace(case, seed=seed) for case in cases.values() for seed in bench.seeds]
    found = dict(zip(seeded, bench.workers.map(fill, seeded), strict=True))
    return {
        name: [found[replace(case, seed=seed)] for seed in bench.seeds]
        for name, case in cases.items()
    }


def _table(what: str, found: dict[str, list[Filled]]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, *_row(runs)) for name, runs in found.items())
    title = f"{DAYS} days on {GPUS} GPUs, {OWNED} of them guaranteed to serving, by {what}: means over seeds"
    return Table(title, (what, *_HEAD), rows)


_HEAD = (
    "serving GPU-hours", "training GPU-hours", "lost", "idle taken %", "requests late %", "stops",
)  # fmt: skip


def _row(runs: Sequence[Filled]) -> tuple[float, ...]:
    return (
        mean([each.serving_gpu_h for each in runs]),
        mean([each.training_gpu_h for each in runs]),
        mean([each.lost_gpu_h for each in runs]),
        100 * mean([each.soaked for each in runs]),
        100 * mean([each.late for each in runs]),
        mean([float(each.preemptions) for each in runs]),
    )


def _trade_table(trades: Sequence[tuple[Valley, Filled]]) -> Table:
    rows = tuple((case.target, case.spare, *_row([filled])) for case, filled in trades)
    return Table(f"Target and spare replicas, {USUAL.rule}", ("target", "spare", *_HEAD), rows)


def _week_table(weeks: dict[Foretold, Served]) -> Table:
    rows = tuple(
        (case.load, case.start_s, "yes" if case.predict else "no", 100 * found.late, found.held)
        for case, found in weeks.items()
    )
    head = ("load", "start s", "predicted", "requests late %", "replica-hours, load = 1")
    return Table("The second of two weeks, each day 0.85 to 1.15 times the usual", head, rows)


def _plot(trades: Sequence[tuple[Valley, Filled]]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {"spare": f"{case.spare} spare", "hours": found.training_gpu_h, "late": 100 * found.late}
        for case, found in trades
    ]
    chart = charts.lines(
        rows, "hours", "late", "spare", x_title="training, GPU-hours", y_title="requests late, %", points=True,
    )  # fmt: skip
    caption = "GPU-hours of training and late requests, by target (0.6 to 1, left to right) and spare replicas"
    return Plot("autoscaling", caption, charts.to_svg(chart))
