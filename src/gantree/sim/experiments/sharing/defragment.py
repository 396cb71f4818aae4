"""defragment: gangs that wait although enough GPUs are free, and moves of running gangs that let them start."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from random import Random
from typing import Literal

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import (
    Bench,
    Outcome,
    Plot,
    Table,
    Verdict,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.inputs import figures, trace
from gantree.sim.experiments.sharing.sharing import nodes_of
from gantree.sim.record import Sample
from gantree.sim.results import JobRow
from gantree.sim.run import simulate
from gantree.sim.running.model import Checkpoints, RunningModel

Placement = Literal["topology", "random"]
Moves = Literal["off", "apply"]

RULES: tuple[tuple[Placement, Moves], ...] = (
    ("topology", "off"),
    ("topology", "apply"),
    ("random", "off"),
    ("random", "apply"),
)
DAYS = 3
"""The first days of the week of the trace."""

WHOLE_NODE = 8
"""GPUs of a member that needs a node to itself: fragments hurt these."""


def value(name: str) -> float:
    """Return the likeliest figure of inputs/defragment.csv."""
    return figures("defragment")[name].value


def rows_of(seed: int) -> tuple[TraceJob, ...]:
    """Return jobs of the first days of philly-week, each kept with the chance that gives the load of these days.

    They run for a day at most; jobs that need more than a quarter of the GPUs are left out.
    """
    gpus, week = value("nodes") * 8, trace("philly-week")
    until_s = min(row.submit_s for row in week) + DAYS * 86_400
    rows = [
        replace(
            row,
            duration_s=min(row.duration_s, 3600 * value("longest_job_h")),
            checkpoint_s=value("checkpoint_s"),
            queue="default",
        )
        for row in week
        if row.submit_s < until_s and row.members * row.gpus_per_member <= gpus / 4
    ]
    offered_gpu_s = sum(row.duration_s * row.members * row.gpus_per_member for row in rows)
    chance = value("load") * gpus * DAYS * 86_400 / offered_gpu_s
    random = Random(seed)  # noqa: S311 - a draw of a simulation, not a secret
    return tuple(row for row in rows if random.random() < chance)


@dataclass(frozen=True, slots=True)
class Case:
    """How jobs are placed, whether gangs are moved, and the seed of the jobs."""

    placement: Placement
    moves: Moves
    seed: int


@dataclass(frozen=True, slots=True)
class Fared:
    """How jobs fared.

    Waits and completion are means in hours; whole_* are of jobs that need whole nodes, blocked_h the part of their wait
    in which as many GPUs as they need were free. cost_gpu_h are the GPU-hours that were held and did no work that was
    kept.
    """

    wait_h: float
    whole_wait_h: float
    blocked_h: float
    jct_h: float
    moves: float
    cost_gpu_h: float
    work_gpu_h: float


def run_case(case: Case) -> Fared:
    """Run the jobs of a seed."""
    policy = replace(
        PRESETS["gantree"], placement=case.placement, defragment=case.moves, placement_seed=case.seed
    )  # fmt: skip
    running = RunningModel(checkpoints=Checkpoints(restore_s=value("restore_s")))
    site = nodes_of(int(value("nodes")))
    result = simulate(site, rows_of(case.seed), policy, overheads=Overheads(), running=running)
    whole = [row for row in result.jobs if row.gpus >= WHOLE_NODE]
    work_gpu_s = sum(row.useful_gpu_s for row in result.jobs)
    return Fared(
        _mean_h([row.wait_s for row in result.jobs]),
        _mean_h([row.wait_s for row in whole]),
        mean([blocked_s(row, result.samples, result.gpus) for row in whole]) / 3600,
        _mean_h([row.jct_s for row in result.jobs]),
        sum(stop.cause == "moved" for row in result.jobs for stop in row.stops),
        (result.held_gpu_s - work_gpu_s) / 3600,
        work_gpu_s / 3600,
    )


def blocked_s(row: JobRow, samples: Sequence[Sample], gpus: int) -> float:
    """Return the seconds of a job's wait in which as many GPUs as it needs were free."""
    assert row.first_start_s is not None, "every job that is kept fits the site"
    first = max(0, bisect_right(samples, row.submit_s, key=lambda each: each.at_s) - 1)
    total_s = 0.0
    for place in range(first, len(samples)):
        sample = samples[place]
        if sample.at_s >= row.first_start_s:
            break
        until_s = samples[place + 1].at_s if place + 1 < len(samples) else row.first_start_s
        if gpus - sample.held_gpus >= row.gpus:
            total_s += min(until_s, row.first_start_s) - max(sample.at_s, row.submit_s)
    return total_s


def _mean_h(times_s: Sequence[float | None]) -> float:
    return mean([time_s for time_s in times_s if time_s is not None]) / 3600


def run(bench: Bench) -> Outcome:
    """Run every rule with every seed."""
    cases = [Case(*rule, seed) for rule in RULES for seed in bench.seeds]
    found = dict(zip(cases, bench.workers.map(run_case, cases), strict=True))
    of_rule = {rule: _mean([found[Case(*rule, seed)] for seed in bench.seeds]) for rule in RULES}
    return Outcome(
        verdicts=_verdicts(of_rule),
        tables=(_table(of_rule),),
        plots=(_plot(of_rule),),
    )


def _mean(runs: Sequence[Fared]) -> Fared:
    columns = zip(*map(astuple, runs), strict=True)
    return Fared(*(mean([float(each) for each in column]) for column in columns))


OfRule = Mapping[tuple[Placement, Moves], Fared]


def _verdicts(of_rule: OfRule) -> tuple[Verdict, ...]:
    off, moved = of_rule["topology", "off"], of_rule["topology", "apply"]
    blind, blind_moved = of_rule["random", "off"], of_rule["random", "apply"]
    return (
        at_least(
            "gangs wait although enough GPUs are free (of the wait of jobs that need whole nodes)",
            100 * off.blocked_h / off.whole_wait_h, 10, " %",
        ),
        at_most(
            "moves shorten that wait by a tenth or more (moved / not)", moved.whole_wait_h / off.whole_wait_h, 0.9, "x",
        ),
        at_most(
            "where placement is random, too", blind_moved.whole_wait_h / blind.whole_wait_h, 0.9, "x",
        ),
        at_most(
            "all jobs together wait no longer (moved / not)", moved.wait_h / off.wait_h, 1.0, "x",
            "no GPU is won by a move: gangs start earlier on GPUs that backfill had given to small jobs, which start "
            "later",
        ),
        at_most(
            "moves cost less than 1 % of the work", 100 * (moved.cost_gpu_h - off.cost_gpu_h) / moved.work_gpu_h, 1,
            " %",
        ),
    )  # fmt: skip


def _table(of_rule: OfRule) -> Table:
    head = (
        "placement", "moves", "wait h", "whole nodes: wait h", "of it with enough free h", "completion h", "moves made",
        "GPU-h held in vain", "GPU-h of work",
    )  # fmt: skip
    rows = tuple((*rule, *astuple(fared)) for rule, fared in of_rule.items())
    return Table(f"{value('nodes'):.0f} nodes of 8 GPUs; means over seeds", head, rows)


def _plot(of_rule: OfRule) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    bars = [
        {"rule": f"{placement}, moves {moves}", "part": part, "wait": hours}
        for (placement, moves), fared in of_rule.items()
        for part, hours in (
            ("enough GPUs free, in pieces", fared.blocked_h),
            ("not enough free", fared.whole_wait_h - fared.blocked_h),
        )
    ]
    chart = charts.bars(bars, "rule", "wait", "part", y_title="mean wait, hours", stacked=True)
    caption = "Mean wait of jobs that need whole nodes, by placement and moves"
    return Plot("defragment", caption, charts.to_svg(chart))
