"""dedicated: a cluster for each queue against one that all share."""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.formats.policy.reader import PRESETS
from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, at_least, at_most
from gantree.sim.experiments.week import gpus_of_queue, site, week, with_guarantees
from gantree.sim.lingjun.alone import private_cluster
from gantree.sim.lingjun.philly import known_gang_of
from gantree.sim.results import JobRow
from gantree.sim.run import simulate

SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Fared:
    """How one queue fared: its jobs, how many finished, their mean wait and completion, and GPU-seconds of work."""

    queue: str
    gpus: int
    jobs: int
    finished: int
    wait_s: float
    jct_s: float
    work_gpu_s: float
    until_s: float


def fared(queue: str, gpus: int, rows: Sequence[JobRow]) -> Fared:
    """Sum up the rows of a queue; means are over jobs that finished."""
    finished = [row for row in rows if row.finished and row.wait_s is not None]
    count = max(1, len(finished))
    return Fared(
        queue,
        gpus,
        len(rows),
        len(finished),
        sum(row.wait_s or 0.0 for row in finished) / count,
        sum(row.jct_s or 0.0 for row in finished) / count,
        sum(((row.jct_s or 0.0) - (row.wait_s or 0.0)) * row.gpus for row in finished),
        max((row.end_s or 0.0 for row in finished), default=0.0),
    )


def run_queue(queue: str) -> list[Fared]:
    """One queue alone on its own cluster; of SHARED all queues on the shared one."""
    gpus = gpus_of_queue()
    if queue != SHARED:
        rows = [row for row in week() if row.queue == queue]
        cluster = private_cluster(gpus[queue])
        result = simulate(cluster, rows, PRESETS["gantree"], jobs=known_gang_of)
        return [fared(queue, gpus[queue], result.jobs)]
    policy = with_guarantees("gantree")
    result = simulate(site(), week(), policy, jobs=known_gang_of)
    rows_of_queue: dict[str, list[JobRow]] = {}
    for row in result.jobs:
        rows_of_queue.setdefault(row.queue, []).append(row)
    return [fared(name, gpus[name], rows) for name, rows in sorted(rows_of_queue.items())]


def run(bench: Bench) -> Outcome:
    """Run each queue alone, and all on one cluster."""
    owning = [queue for queue, gpus in gpus_of_queue().items() if gpus]
    shared, *alone = bench.workers.map(run_queue, [SHARED, *owning])
    of_queue = {each.queue: each for each in shared}
    pairs = [(one, of_queue[one.queue]) for (one,) in alone]
    wait_alone, wait_shared = (_mean_wait_h([pair[side] for pair in pairs]) for side in (0, 1))
    lost = sum(one.jobs - one.finished for one, _ in pairs)
    kept = sum(other.jobs - other.finished for _, other in pairs)
    return Outcome(
        verdicts=(
            at_least("sharing halves the mean wait, or better", wait_alone / wait_shared, 2, "x"),
            at_most("no job that fits the site is turned away where all share", kept, 0, " jobs"),
            at_least("dedicated clusters turn away jobs larger than they are", lost, 1, " jobs"),
        ),
        tables=(
            Table(
                "Each queue alone, and sharing one cluster with a guarantee of the same size",
                ("queue", "GPUs", "jobs", "never ran, alone", "never ran, shared", "wait h, alone", "wait h, shared"),
                tuple(
                    (
                        one.queue[:6], one.gpus, one.jobs, one.jobs - one.finished, other.jobs - other.finished,
                        one.wait_s / 3600, other.wait_s / 3600,
                    )
                    for one, other in pairs
                ),
            ),
        ),
        plots=(_plot(pairs),),
    )  # fmt: skip


def _mean_wait_h(found: Sequence[Fared]) -> float:
    return (
        sum(each.wait_s * each.finished for each in found) / 3600 / sum(e.finished for e in found)
    )


def _plot(pairs: Sequence[tuple[Fared, Fared]]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {"queue": one.queue[:6], "cluster": name, "wait": each.wait_s / 3600}
        for one, other in pairs
        for name, each in (("dedicated", one), ("shared", other))
    ]
    chart = charts.bars(rows, "queue", "wait", "cluster", y_title="mean wait, hours")
    caption = "Mean wait of each queue's jobs on a cluster of its own and on the shared one"
    return Plot("dedicated", caption, charts.to_svg(chart))
