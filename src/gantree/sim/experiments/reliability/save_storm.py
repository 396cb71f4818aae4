"""save-storm: all jobs that save at once to one store, against jobs that take turns."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.sim.experiments.experiment import (
    Bench,
    Outcome,
    Plot,
    Table,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.inputs import cluster, figures
from gantree.sim.run import simulate
from gantree.sim.running.model import Checkpoints, RunningModel

JOBS, NODES_OF_JOB, GPUS_OF_NODE = 16, 4, 8
WORK_S = 8 * 3600.0
AT_ONCE, JITTER, DRAWN, TURNS = (
    "at once",
    "at once, intervals differ by 10 %",
    "drawn starts",
    "turns",
)
ARMS = (AT_ONCE, JITTER, DRAWN, TURNS)


def stores() -> dict[str, float]:
    """Return GB/s of the store for each node: the ends of the range and the likeliest."""
    given = figures("reliability")["store_GBps_per_node"]
    return {"slow": given.low, "usual": given.value, "fast": given.high}


def interval_s() -> float:
    """Return the seconds of work between two saves."""
    return figures("reliability")["checkpoint_min"].value * 60


def trace_of(arm: str, seed: int) -> list[TraceJob]:
    """Return the jobs: all alike but for when they start, or how often they save."""
    draws = Random(f"{seed}/{arm}")  # noqa: S311 - a draw, not a secret
    every_s = interval_s()
    rows = []
    for number in range(JOBS):
        row = TraceJob(str(number), 0.0, WORK_S, NODES_OF_JOB, GPUS_OF_NODE, checkpoint_s=every_s)
        if arm == JITTER:
            row = replace(row, checkpoint_s=every_s * draws.uniform(0.9, 1.1))
        elif arm == DRAWN:
            row = replace(row, submit_s=draws.uniform(0, every_s))
        elif arm == TURNS:
            row = replace(row, submit_s=number * every_s / JOBS)
        rows.append(row)
    return rows


def stall_s(case: tuple[str, float, int]) -> float:
    """Return the seconds that a job stands still for one save, mean over jobs and saves.

    case: how the jobs are staggered, GB/s of the store for each node, and a seed.
    """
    arm, GBps_of_node, seed = case
    site = cluster("dgx-h100")
    checkpoints = Checkpoints(
        store_GBps=GBps_of_node * len(site.nodes),
        state_GB_per_GPU=figures("reliability")["state_GB_per_GPU"].value,
    )
    rows = trace_of(arm, seed)
    result = simulate(
        site, rows, PRESETS["gantree"], running=RunningModel(checkpoints=checkpoints), seed=seed
    )
    stalls_s = []
    for row, job in zip(rows, result.jobs, strict=True):
        assert job.end_s is not None
        assert job.first_start_s is not None
        assert row.checkpoint_s is not None
        saves = saves_in(WORK_S, row.checkpoint_s)
        stalls_s.append((job.end_s - job.first_start_s - WORK_S) / saves)
    return mean(stalls_s)


def saves_in(work_s: float, every_s: float) -> int:
    """Return how often a job saves by itself: not at its end."""
    saves = int(work_s / every_s)
    return saves - 1 if saves * every_s == work_s else saves


def needed_GBps(GB_at_once: float, every_s: float, share: float) -> float:
    """Return the bandwidth at which saving takes this share of the time."""
    return GB_at_once / (share * every_s)


def run(bench: Bench) -> Outcome:
    """Run 16 jobs that save to one store, with each way to stagger them, each store and each seed."""
    cases = [
        (arm, GBps, seed) for GBps in stores().values() for arm in ARMS for seed in bench.seeds
    ]
    stall_of_case = dict(zip(cases, bench.workers.map(stall_s, cases), strict=True))
    found = {
        (arm, name): mean([stall_of_case[arm, GBps, seed] for seed in bench.seeds])
        for name, GBps in stores().items()
        for arm in ARMS
    }
    times = found[AT_ONCE, "usual"] / found[TURNS, "usual"]
    share = 100 * found[AT_ONCE, "usual"] / interval_s()
    return Outcome(
        verdicts=(
            at_least("16 jobs that save at once stall 16 times as long as in turns", round(times, 6), 16, "x"),
            at_least(
                "drawn starts are as good as turns (stall at once / with drawn starts)",
                found[AT_ONCE, "usual"] / found[DRAWN, "usual"], 0.9 * times, "x", "now and then saves overlap",
            ),
            at_most(
                "a store as fast as that of Llama 3 keeps a storm below 5 % of the time", share, 5, " %",
            ),
        ),
        tables=(_stalls(found), _stores()),
        plots=(_plot(found),),
    )  # fmt: skip


def _stalls(found: dict[tuple[str, str], float]) -> Table:
    rows = []
    for name, GBps in stores().items():
        for arm in ARMS:
            seconds = found[arm, name]
            rows.append((name, GBps, arm, seconds, 100 * seconds / interval_s()))
    head = ("store", "GB/s a node", "saves", "stall of one save, s", "of the interval %")
    return Table("16 jobs of 32 GPUs that save every 15 minutes to one store", head, tuple(rows))


def _stores() -> Table:
    """What store keeps saving at 1 % of the time, by what is written at once."""
    GB = figures("reliability")["state_GB_per_GPU"]
    gpus = JOBS * NODES_OF_JOB * GPUS_OF_NODE
    cases: Sequence[tuple[str, float]] = (
        ("all 512 GPUs at once", gpus * GB.value),
        ("one of 16 jobs at a time", gpus / JOBS * GB.value),
        ("all at once, one of 8 replicas writes", gpus * GB.low),
        ("all at once, 14 GB a GPU", gpus * GB.high),
    )
    rows = tuple((name, much, needed_GBps(much, interval_s(), 0.01)) for name, much in cases)
    return Table(
        "Store that keeps saving at 1 % of the time",
        ("written together", "GB", "GB/s needed"),
        rows,
    )


def _plot(found: dict[tuple[str, str], float]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {"store": name, "saves": arm, "stall": found[arm, name]}
        for name in stores()
        for arm in ARMS
    ]
    chart = charts.bars(rows, "store", "stall", "saves", y_title="stall of one save, s", log_y=True)
    return Plot("save-storm", "Seconds that a job stands still for one save", charts.to_svg(chart))
