"""health: what failing nodes and degrading links leave of the time of a job of 1,000 nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.jobs import Job
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import (
    Bench,
    Judgement,
    Outcome,
    Plot,
    Table,
    Verdict,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.inputs import cluster, figures, models
from gantree.sim.run import Simulation
from gantree.sim.running.model import DAY_S, Checkpoints, FailureRate, Failures, RunningModel
from gantree.sim.workload import job_of

NODES, GPUS_OF_NODE, NODES_OF_LEAF = 1_000, 8, 32
DAYS = 10.0
SPARES = (0, 2, 4, 8, 16, 32)
ENOUGH = SPARES[-1]
LEAF_MORE = 56
"""Spares that cover a leaf of nodes beside those that are being repaired."""
LINKS: tuple[tuple[bool, bool], ...] = ((False, True), (True, False), (True, True))
"""Whether links degrade, and whether the job leaves them."""
Arm = tuple[int, float, bool | None, bool]
"""Spares, minutes between checkpoints, whether links degrade, whether the job leaves them."""
INTERVALS_MIN = (5.0, 15.0, 60.0)
MODEL = "llama-7b"
LLAMA3_NODES, LLAMA3_ETTR = 2_048, 0.90
RSC1_MTTF_H = {16_384: 1.8, 131_072: 0.23}
"""Hours between failures of a job by its GPUs, as Kokolis et al. project them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: spare nodes, minutes between checkpoints, whether links degrade (None: the job sends nothing), seed.

    leaves: whether the job may leave links that degrade.
    """

    spares: int
    interval_min: float
    links: bool | None
    leaves: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run came to: the share of the time that was work that is kept, and how often what came.

    moves: how often the job left a degraded link.
    """

    ettr: float
    failures: int
    degradations: int
    moves: int


def failures_per_day(nodes: int) -> float:
    """Return failures a day of a job on so many nodes."""
    return nodes * figures("reliability")["node_failures_per_day"].value


def expected_ettr(per_day: float, interval_s: float, save_s: float, restart_s: float) -> float:
    """Return the effective training time ratio that Kokolis et al. (2024) expect, for losses that are small.

    (1 - failures x (restart + half an interval)) / (1 + save / interval); times in seconds, failures a day.
    """
    lost = per_day / DAY_S * (restart_s + interval_s / 2)
    return max(0.0, 1 - lost) / (1 + save_s / interval_s)


def best_interval_s(per_day: float, save_s: float) -> float:
    """Return the seconds between checkpoints that lose least, sqrt(2 x save x time between failures) (Young 1974)."""
    return sqrt(2 * save_s * DAY_S / per_day)


def restart_s() -> float:
    """Return seconds from a failure until the job works again, without waiting for a node."""
    given = figures("reliability")
    return given["restart_min"].value * 60 + given["restore_s"].value


def running(case: Case) -> RunningModel:
    """Return the model of running of a case."""
    given = figures("reliability")
    per_leaf = NODES_OF_LEAF * given["link_degradations_per_day"].value
    repair_s, kept = given["link_repair_h"].value * 3600, given["link_health"].value
    links = (("leaf", FailureRate(per_leaf, repair_s, kept)),) if case.links else ()
    node = FailureRate(given["node_failures_per_day"].value, given["repair_h"].value * 3600)
    checkpoints = Checkpoints(save_s=given["save_s"].value, restore_s=given["restore_s"].value)
    return RunningModel(
        contention=case.links is not None,
        checkpoints=checkpoints,
        failures=Failures(node=node, links=links),
    )


def run_case(case: Case) -> Ran:
    """Run the job for DAYS and count the work that it has done and can go on from."""
    whole = cluster("dgx-h100-1056")
    site = replace(whole, nodes=whole.nodes[: NODES + case.spares])
    every_s = case.interval_min * 60
    row = TraceJob("large", 0.0, 1e9, NODES, GPUS_OF_NODE, checkpoint_s=every_s)
    start_s = figures("reliability")["restart_min"].value * 60
    policy = replace(PRESETS["gantree"], restart_s=start_s, leave_degraded=case.leaves)
    simulation = Simulation(
        site, [row], policy, Overheads(start_s), _jobs(case), running=running(case), seed=case.seed
    )
    end_s = DAYS * DAY_S
    while simulation.now < end_s and simulation.step():
        pass
    work, came = simulation.cluster.work_of_job["tlarge"], simulation.site.counts.came
    moves = len(simulation.scheduler.ledger.jobs["tlarge"].fled_at)
    return Ran(min(1.0, work.kept_s / end_s), work.failures, came["link"], moves)


def _jobs(case: Case) -> Callable[[TraceJob], Job]:
    return job_of if case.links is None else lambda row: models()[MODEL].trained_by(job_of(row))


def run(bench: Bench) -> Outcome:
    """Run the job with spares, intervals and degrading links, for every seed."""
    save_s = figures("reliability")["save_s"].value
    best_min = best_interval_s(failures_per_day(NODES), save_s) / 60
    intervals = (*INTERVALS_MIN, best_min)
    arms = [
        *((spares, 15.0, None, True) for spares in SPARES),
        *((ENOUGH, minutes, None, True) for minutes in intervals if minutes != INTERVALS_MIN[1]),
        *((spares, 15.0, *links) for spares in (ENOUGH, LEAF_MORE) for links in LINKS),
    ]
    cases = [Case(*arm, seed) for arm in arms for seed in bench.seeds]
    ran = bench.workers.map(run_case, cases)
    found: dict[Arm, list[Ran]] = {arm: [] for arm in arms}
    for case, each in zip(cases, ran, strict=True):
        found[case.spares, case.interval_min, case.links, case.leaves].append(each)
    ettr = {arm: mean([each.ettr for each in rows]) for arm, rows in found.items()}
    usual = ettr[ENOUGH, 15.0, None, True]
    formula = expected_ettr(failures_per_day(NODES), 900, save_s, restart_s())
    return Outcome(
        verdicts=(
            at_least("a job of 1,000 nodes is effective for 90 % of the time, with spares", 100 * usual, 90, " %"),
            at_most("the simulation is within 2 points of Kokolis' formula", 100 * abs(usual - formula), 2, " points"),
            _of_llama3(save_s),
            at_most("without spares the job hardly runs (effective time)", 100 * ettr[0, 15.0, None, True], 10, " %"),
            _of_moving(ettr, found),
        ),
        tables=(
            Table(
                f"{NODES:,} nodes for {DAYS:.0f} days, checkpoints every 15 minutes, by spare nodes: means over seeds",
                ("spares", "effective time %", "failures"),
                tuple(
                    (spares, 100 * ettr[spares, 15.0, None, True], _failures(found[spares, 15.0, None, True]))
                    for spares in SPARES
                ),
            ),
            Table(
                "By the interval of checkpoints, with 32 spares",
                ("minutes between checkpoints", "effective time %", "by the formula %"),
                tuple(
                    (
                        minutes, 100 * ettr[ENOUGH, minutes, None, True],
                        100 * expected_ettr(failures_per_day(NODES), minutes * 60, save_s, restart_s()),
                    )
                    for minutes in sorted(intervals)
                ),
            ),
            _links(ettr, found),
            _published(),
        ),
        plots=(_plot(ettr),),
        notes=(
            f"Young's interval for {failures_per_day(NODES):.1f} failures a day and saves of {save_s:.0f} s is "
            f"{best_min:.0f} minutes.",
        ),
    )  # fmt: skip


def _of_llama3(save_s: float) -> Verdict:
    per_day = LLAMA3_NODES * figures("reliability")["llama3_failures_per_day"].value
    expected = expected_ettr(per_day, best_interval_s(per_day, save_s), save_s, restart_s())
    return at_least(
        "Llama 3 on 2,048 nodes was effective for more than 90 %: the formula with its failures and these costs",
        100 * expected,
        100 * LLAMA3_ETTR,
        " %",
        "its restarts and saves must have been shorter than those assumed here",
    )


def _failures(ran: Sequence[Ran]) -> float:
    return mean([each.failures for each in ran])


def _of_moving(ettr: dict[Arm, float], found: dict[Arm, list[Ran]]) -> Verdict:
    whole, stays, leaves = (ettr[LEAF_MORE, 15.0, *links] for links in LINKS)
    moves = mean([each.moves for each in found[LEAF_MORE, 15.0, True, True]])
    pays = leaves > stays
    return Verdict(
        "moving early off degrading links pays",
        f"{100 * leaves:.2f} % effective with {moves:.1f} moves, {100 * stays:.2f} % without, {100 * whole:.2f} % with "
        f"whole links ({LEAF_MORE} spares)",
        Judgement.HOLDS if pays else Judgement.MISSED,
        "" if pays else "what moves cost is not less than what they gain",
    )


def _links(ettr: dict[Arm, float], found: dict[Arm, list[Ran]]) -> Table:
    rows = []
    for spares in (ENOUGH, LEAF_MORE):
        for links, name in zip(
            LINKS, ("whole", "degrade, the job stays", "degrade, the job leaves"), strict=True
        ):
            arm = (spares, 15.0, *links)
            times = mean([each.degradations for each in found[arm]])
            moves = mean([each.moves for each in found[arm]])
            rows.append((spares, name, times, moves, 100 * ettr[arm]))
    head = ("spares", "up-links of leaves", "degradations", "moves", "effective time %")
    return Table(
        f"Training {MODEL} on 1,000 nodes, by spares and what happens on degraded links",
        head,
        tuple(rows),
    )


def _published() -> Table:
    rows: list[tuple[str, float, float]] = []
    for gpus, hours in RSC1_MTTF_H.items():
        rows.append((f"RSC-1, {gpus:,} GPUs", hours, 24 / failures_per_day(gpus // GPUS_OF_NODE)))
    llama3 = LLAMA3_NODES * figures("reliability")["llama3_failures_per_day"].value
    rows.append(("Llama 3, 16,384 GPUs", 54 * 24 / 419, 24 / llama3))
    head = ("job", "published", "from the rate of a node")
    return Table("Hours between failures of a job", head, tuple(rows))


def _plot(ettr: dict[Arm, float]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows: Sequence[dict[str, float]] = [
        {"spares": spares, "ettr": 100 * ettr[spares, 15.0, None, True]} for spares in SPARES
    ]
    chart = charts.lines(
        rows, "spares", "ettr", x_title="spare nodes", y_title="effective time, %", points=True
    )
    return Plot(
        "health", "Effective time of a job of 1,000 nodes, by spare nodes", charts.to_svg(chart)
    )
