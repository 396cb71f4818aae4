"""topology: what placement by topology is worth, by mix, fabric and model."""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.policy.rules import PlacementRule
from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, Verdict, at_least
from gantree.sim.experiments.inputs import MIXES
from gantree.sim.experiments.network.scaling import scaling_table
from gantree.sim.experiments.placements import (
    BLIND,
    FLEETS,
    GANTREE,
    Fleet,
    Run,
    geometric_mean,
    ratios,
    result_of,
    stretch_of_job,
)

SEEDS = 2
"""Seeds at most: a run of the week takes ten seconds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a run: the stretch of each job of two or more GPUs, mean wait, useful share of capacity."""

    run: Run
    stretch: dict[str, float]
    wait_h: float
    useful: float


def measure(run: Run) -> Measured:
    """Simulate a run."""
    result = result_of(run)
    summary = result.summary()
    return Measured(
        run,
        stretch_of_job(result.jobs),
        (summary["wait_s"]["mean"] or 0.0) / 3600,
        summary["goodput"],
    )


@dataclass(frozen=True, slots=True)
class Row:
    """Gains of gantree over one baseline on one fleet with one mix, over jobs of two or more GPUs and all seeds."""

    fleet: Fleet
    mix: str
    baseline: PlacementRule
    gain: float
    p99: float
    worst: float
    wait_h: tuple[float, float]
    useful: tuple[float, float]


def run(bench: Bench) -> Outcome:
    """Run every fleet, mix, placement and seed."""
    seeds = bench.seeds[:SEEDS]
    runs = [
        Run(fleet, mix, placement, seed)
        for fleet in FLEETS
        for mix in MIXES
        for placement in (GANTREE, *BLIND)
        for seed in seeds
    ]
    found = {each.run: each for each in bench.workers.map(measure, runs)}
    rows = [
        _row(fleet, mix, baseline, seeds, found)
        for fleet in FLEETS
        for mix in MIXES
        for baseline in BLIND
    ]
    heavy = [row for row in rows if row.mix == "heavy"]
    return Outcome(
        verdicts=_verdicts(rows, heavy),
        tables=(_table(rows), scaling_table()),
        plots=(_plot(rows),),
    )


def _row(
    fleet: Fleet,
    mix: str,
    baseline: PlacementRule,
    seeds: Sequence[int],
    found: dict[Run, Measured],
) -> Row:
    pairs = [
        (found[Run(fleet, mix, GANTREE, seed)], found[Run(fleet, mix, baseline, seed)])
        for seed in seeds
    ]
    all_ratios = sorted(
        ratio for ours, theirs in pairs for ratio in ratios(ours.stretch, theirs.stretch)
    )
    count = len(pairs)
    return Row(
        fleet, mix, baseline, geometric_mean(all_ratios),
        all_ratios[max(1, -(-99 * len(all_ratios) // 100)) - 1], all_ratios[-1],
        (sum(one.wait_h for one, _ in pairs) / count, sum(other.wait_h for _, other in pairs) / count),
        (sum(one.useful for one, _ in pairs) / count, sum(other.useful for _, other in pairs) / count),
    )  # fmt: skip


def _verdicts(rows: Sequence[Row], heavy: Sequence[Row]) -> tuple[Verdict, ...]:
    """On pods of one GPU against best-fit, which packs as kube-scheduler can; then the extremes."""
    packed = [row for row in rows if row.baseline == "best-fit" and row.fleet.gpus_each == 1]
    least = min(heavy, key=lambda row: row.gain)
    worst = max(row.worst for row in rows)
    return (
        *(
            at_least(
                f"{row.mix} mix, {row.fleet.name}: 1.3 times best-fit", row.gain, 1.3, "x",
                "most of its models send little for what they compute",
            )
            for row in packed
        ),
        at_least(
            f"heavy mix: 1.3 times that of every baseline on every fleet (least: {least.baseline}, {least.fleet.name})",
            least.gain, 1.3, "x", "a pod of a whole node cannot be torn apart, and a ring leaves a leaf once",
        ),
        at_least("2 to 5 times, somewhere", max(row.gain for row in packed), 2, "x"),
        at_least("the worst placement of a job makes its step 2 to 10 times as long", worst, 2, "x"),
    )  # fmt: skip


def _table(rows: Sequence[Row]) -> Table:
    return Table(
        "Throughput of gantree's placement over a baseline: geometric mean over jobs of two or more GPUs",
        (
            "cluster", "mix", "baseline", "gain", "p99 of jobs", "worst job", "wait h ours", "wait h theirs",
            "useful % ours", "useful % theirs",
        ),
        tuple(
            (
                row.fleet.name, row.mix, row.baseline, row.gain, row.p99, row.worst, *row.wait_h,
                *(100 * share for share in row.useful),
            )
            for row in rows
        ),
    )  # fmt: skip


def _plot(rows: Sequence[Row]) -> Plot:
    """The fleets whose pods can be torn apart, without the random baseline, which dwarfs the others."""
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    bars = [
        {
            "case": f"{row.fleet.cluster.rpartition('-')[2]}, {row.mix}",
            "baseline": row.baseline,
            "gain": row.gain,
        }
        for row in rows
        if row.fleet.gpus_each == 1 and row.baseline != "random"
    ]
    chart = charts.bars(
        bars, "case", "gain", "baseline", x_title="NIC of a node, mix of models",
        y_title="throughput, gantree over baseline",
    )  # fmt: skip
    caption = "Throughput of gantree's placement over placements that are blind to the topology, pods of one GPU"
    return Plot("topology", caption, charts.to_svg(chart))
