"""sharing: a fleet of inference on whole GPUs and on parts of them, at one p99."""

from dataclasses import astuple, dataclass
from math import ceil

from gantree.formats import read_cluster
from gantree.formats.policy.reader import PRESETS
from gantree.model.cluster import Cluster
from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, at_least, at_most
from gantree.sim.experiments.inputs import figures
from gantree.sim.experiments.sharing.replica import (
    DAY_S,
    PARTS,
    STEP_S,
    WHOLE,
    Part,
    demand,
    highest_load,
    mean_p99,
    replica_rows,
    replicas_at,
    sharing_figure,
)
from gantree.sim.run import simulate

FLEET = 96
"""GPUs of the fleet before: each has one replica."""

DAYS = 2
HEAD = (
    "a replica gets",
    "load %",
    "p99 s",
    "replicas",
    "GPUs",
    "day %",
    "peak %",
    "of held GPUs %",
    "wait s",
)
OTHER_SEEDS = 1_000
"""Added to the seeds with which a load is checked after it was found."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet with one kind of part.

    load is of each replica, p99_s that of a full GPU; busy_mean and busy_peak are percent of all GPUs that requests
    keep busy over the day and at its peak, busy_held of the GPUs that replicas hold; wait_s is the longest wait of one.
    """

    part: str
    load: float
    p99_s: float
    replicas: int
    gpus: int
    busy_mean: float
    busy_peak: float
    busy_held: float
    wait_s: float


def nodes_of(count: int, machine: str = "dgx-h100") -> Cluster:
    """Return a cluster of so many nodes of 8 GPUs below one leaf."""
    return read_cluster(
        f"name: n{count}\ntiers: [leaf, node]\nnodes:\n"
        f'  - {{names: "n[0-{count - 1}]", machine: {machine}, at: {{leaf: l0}}}}\n',
        "a cluster of an experiment",
    )


def fleet_of(case: tuple[Part, tuple[int, ...]]) -> Fleet:
    """Find the load that a part bears, and run the replicas that the days need with it."""
    part, seeds = case
    target = mean_p99(WHOLE, sharing_figure("load"), seeds)
    load = sharing_figure("load") if part is WHOLE else highest_load(part, target, seeds)
    others = tuple(seed + OTHER_SEEDS for seed in seeds)
    busy, trough = FLEET * sharing_figure("load"), figures("fleets")["trough"].value
    peak = replicas_at(DAY_S / 2 + 4 * 3600, busy, load, trough)
    nodes = ceil(peak / part.per_gpu / 8)
    rows = tuple(replica_rows(part, busy, load, DAYS, trough))
    result = simulate(nodes_of(nodes), rows, PRESETS["gantree"])
    asked_gpu_s = sum(row.duration_s for row in rows) / part.per_gpu
    used = sharing_figure("width") * busy
    steps = range(0, DAY_S, STEP_S)
    mean_used = used * sum(demand(at_s, trough) for at_s in steps) / len(steps)
    waits_s = [float("inf") if row.wait_s is None else row.wait_s for row in result.jobs]
    return Fleet(
        part.name, load, sharing_figure("service_s") * mean_p99(part, load, others), peak, 8 * nodes,
        100 * mean_used / (8 * nodes), 100 * used / (8 * nodes), 100 * mean_used * DAYS * DAY_S / asked_gpu_s,
        max(waits_s),
    )  # fmt: skip


def run(bench: Bench) -> Outcome:
    """Size and run the fleet with every kind of part."""
    fleets = bench.workers.map(fleet_of, [(part, bench.seeds) for part in PARTS])
    before, *shared = fleets
    best = max(shared, key=lambda fleet: fleet.busy_mean)
    mig = max((fleet for fleet in shared if "MIG" in fleet.part), key=lambda fleet: fleet.busy_mean)
    return Outcome(
        verdicts=(
            at_least("whole GPUs: 20 to 30 % busy over the day", before.busy_mean, 20, " %"),
            at_least(
                f"parts: 60 to 80 % busy over the day ({best.part})", best.busy_mean, 60, " %",
                "the fleet is sized for the peak, and the night has 40 % of its requests; only other work can use what "
                "is idle then (see consolidation)",
            ),
            at_least(f"parts: 60 to 80 % busy at the peak ({best.part})", best.busy_peak, 60, " %"),
            at_least(
                f"MIG: 60 to 80 % busy at the peak ({mig.part})", mig.busy_peak, 60, " %",
                "a request is slowed by its partition, so replicas bear less load at the same p99",
            ),
            at_most("p99 no higher than on whole GPUs (p99 / p99 there)", best.p99_s / before.p99_s, 1.02, "x"),
            at_most("no replica waits for room", max(fleet.wait_s for fleet in fleets), 0, " s"),
        ),
        tables=(
            Table(
                "The fleet at one p99, by what a replica gets; % of the GPUs that requests keep busy",
                HEAD,
                tuple((fleet.part, 100 * fleet.load, *astuple(fleet)[2:]) for fleet in fleets),
            ),
        ),
        plots=(_plot(fleets),),
    )  # fmt: skip


def _plot(fleets: list[Fleet]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {"part": fleet.part, "when": when, "busy": busy}
        for fleet in fleets
        for when, busy in (("mean of the day", fleet.busy_mean), ("peak", fleet.busy_peak))
    ]
    chart = charts.bars(rows, "part", "busy", "when", y_title="GPUs that requests keep busy, %")
    return Plot("sharing", "How busy a fleet is at one p99, by what a replica gets", charts.to_svg(chart))  # fmt: skip
