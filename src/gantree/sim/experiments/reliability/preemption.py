"""preemption: what being stopped costs a job, and whom to stop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.jobs import Job
from gantree.policy.rules import Policy, VictimRule
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
from gantree.sim.experiments.inputs import cluster, figures, lingjun, trace
from gantree.sim.results import Result
from gantree.sim.run import simulate
from gantree.sim.workload import job_of

MINUTE_S, HOUR_S = 60.0, 3600.0
ASKED, STOPPED = "saves when asked", "stopped at once"
MODES = (ASKED, STOPPED)
VICTIMS: tuple[VictimRule, ...] = ("loss", "youngest")
LATE_S = (0.0, 7.5 * MINUTE_S, 15 * MINUTE_S - 1)
"""Seconds after hour 4 at which the job is preempted: just after a checkpoint, in the middle, just before the next."""


@dataclass(frozen=True, slots=True)
class Week:
    """One run of the trace: how often jobs were preempted, GPU-hours that this lost, and hours of jobs."""

    preemptions: int
    lost_gpu_h: float
    jct_h: float
    production_wait_min: float


def overheads() -> Overheads:
    """Return what a restart and a save on request cost."""
    given = figures("reliability")
    return Overheads(given["restart_min"].value * MINUTE_S, save_s=given["save_s"].value)


def policy(victims: VictimRule) -> Policy:
    """Return the preset `gantree` that knows what a restart costs, with a rule for victims."""
    base = PRESETS["gantree"]
    preemption = replace(base.preemption, victims=victims)
    return replace(base, restart_s=overheads().start_s, preemption=preemption)


def jobs_of(mode: str) -> Callable[[TraceJob], Job]:
    """Return how rows become jobs: both save every so often, but only some can be asked to save."""

    def job(row: TraceJob) -> Job:
        known = replace(job_of(row), expected_s=row.duration_s)
        return known if mode == ASKED else replace(known, checkpoint=None)

    return job


def with_production(rows: Sequence[TraceJob], seed: int) -> list[TraceJob]:
    """Return the rows with checkpoints, and a drawn share of those that are not too large as class production."""
    given = figures("reliability")
    share, most = given["production_share"].value, given["production_most_GPUs"].value
    checkpoint_s = given["checkpoint_min"].value * MINUTE_S

    def priority(row: TraceJob) -> str:
        draw = Random(f"{seed}/{row.job_id}").random()  # noqa: S311 - a draw, not a secret
        small = row.members * row.gpus_per_member <= most
        return "production" if small and draw < share else "batch"

    return [replace(row, checkpoint_s=checkpoint_s, priority=priority(row)) for row in rows]


def alone(case: tuple[str, float]) -> tuple[float, float]:
    """(minutes of work done twice, minutes lost with save and restart) of one job of 16 GPUs that is preempted.

    case: how it stops, and seconds after hour 4 of its work.
    """
    mode, late_s = case
    checkpoint_s = figures("reliability")["checkpoint_min"].value * MINUTE_S
    start_s = overheads().start_s
    long = TraceJob("long", 0.0, 8 * HOUR_S, 2, 8, checkpoint_s=checkpoint_s)
    urgent = TraceJob("urgent", start_s + 4 * HOUR_S + late_s, HOUR_S, 2, 8, priority="production")
    result = _run([long, urgent], mode, "loss", small=True)
    job = result.jobs[0]
    assert job.preemptions == 1, "the job is preempted once"
    lost_s = job.gpu_s_lost / job.gpus
    twice_s = 0.0 if mode == ASKED else lost_s - start_s
    return twice_s / MINUTE_S, lost_s / MINUTE_S


def week(case: tuple[int, str, VictimRule]) -> Week:
    """Run the trace with a seed for who is production, a way to stop, and a rule for victims."""
    seed, mode, victims = case
    rows = with_production(trace("muri-trace3"), seed)
    result = _run(rows, mode, victims)
    summary = result.summary()
    production = {row.job_id for row in rows if row.priority == "production"}
    waits_s = [row.wait_s or 0.0 for row in result.jobs if row.job_id in production]
    return Week(
        summary["preemptions"],
        summary["gpu_hours_lost"],
        summary["jct_s"]["mean"] / HOUR_S,
        mean(waits_s) / MINUTE_S,
    )


def _run(
    rows: Sequence[TraceJob], mode: str, victims: VictimRule, *, small: bool = False
) -> Result:
    site = lingjun(2) if small else cluster("v100-100g")
    return simulate(site, rows, policy(victims), jobs=jobs_of(mode), overheads=overheads())


def run(bench: Bench) -> Outcome:
    """Preempt one job at hour 4, then run the trace for every seed, way to stop and rule."""
    singles = [(mode, late_s) for mode in MODES for late_s in LATE_S]
    lost = dict(zip(singles, bench.workers.map(alone, singles), strict=True))
    cases = [(seed, mode, victims) for seed in bench.seeds for mode in MODES for victims in VICTIMS]
    weeks = dict(zip(cases, bench.workers.map(week, cases), strict=True))
    return Outcome(
        verdicts=(*_of_one_job(lost), *(_of_victims(weeks, bench.seeds, mode) for mode in MODES)),
        tables=(
            Table(
                "One job of 16 GPUs, preempted at hour 4 and a little",
                ("the job", "minutes after hour 4", "work done twice, min", "lost in all, min"),
                tuple((mode, late_s / MINUTE_S, *lost[mode, late_s]) for mode, late_s in singles),
            ),
            Table(
                "992 jobs, a fifth of them production: means over seeds",
                (
                    "jobs", "victims by", "preemptions", "GPU-hours lost", "lost a preemption", "mean completion h",
                    "production waits, min",
                ),
                tuple(_row(weeks, bench.seeds, mode, victims) for mode in MODES for victims in VICTIMS),
            ),
        ),
        plots=(_plot(weeks, bench.seeds),),
    )  # fmt: skip


def _of_one_job(lost: dict[tuple[str, float], tuple[float, float]]) -> list[Verdict]:
    twice = max(work for work, _ in lost.values())
    whole = {mode: max(lost[mode, late_s][1] for late_s in LATE_S) for mode in MODES}
    allowed = figures("reliability")["checkpoint_min"].value
    restart = figures("reliability")["restart_min"].value
    return [
        at_most("at most 15 minutes of work are done twice", twice, allowed, " min"),
        at_most("at most 15 minutes are lost in all, where the job saves when asked", whole[ASKED], allowed, " min"),
        at_most(
            "at most 15 minutes are lost in all, where it is stopped at once", whole[STOPPED], allowed, " min",
            f"a restart of {restart:.0f} minutes comes on top of the work since the last checkpoint",
        ),
    ]  # fmt: skip


def _of_victims(
    weeks: dict[tuple[int, str, VictimRule], Week], seeds: Sequence[int], mode: str
) -> Verdict:
    youngest, loss = (
        mean([weeks[seed, mode, victims].lost_gpu_h for seed in seeds])
        for victims in ("youngest", "loss")
    )
    return at_least(
        f"stopping the youngest loses more than stopping by lost work (jobs: {mode})",
        youngest / loss,
        1,
        "x",
        "what is lost is nearly all restarts, which both rules pay for",
    )


def _row(
    weeks: dict[tuple[int, str, VictimRule], Week],
    seeds: Sequence[int],
    mode: str,
    victims: VictimRule,
) -> tuple[str, str, float, float, float, float, float]:
    found = [weeks[seed, mode, victims] for seed in seeds]
    stops = sum(each.preemptions for each in found)
    return (
        mode,
        victims,
        stops / len(found),
        mean([each.lost_gpu_h for each in found]),
        sum(each.lost_gpu_h for each in found) / max(1, stops),
        mean([each.jct_h for each in found]),
        mean([each.production_wait_min for each in found]),
    )


def _plot(weeks: dict[tuple[int, str, VictimRule], Week], seeds: Sequence[int]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = []
    for mode in MODES:
        for victims in VICTIMS:
            found = [weeks[seed, mode, victims].lost_gpu_h for seed in seeds]
            row = {"jobs": mode, "victims by": victims, "lost": mean(found)}
            rows.append({**row, "least": min(found), "most": max(found)})
    chart = charts.bars(
        rows, "jobs", "lost", "victims by", y_title="GPU-hours lost", interval=("least", "most")
    )
    caption = "GPU-hours lost to preemption, mean over seeds with the least and the most"
    return Plot("preemption", caption, charts.to_svg(chart))
