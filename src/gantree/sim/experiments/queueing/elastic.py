"""elastic: gangs that change their size against gangs that do not."""

from dataclasses import dataclass, replace
from math import ceil
from random import Random

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, at_least, mean
from gantree.sim.experiments.inputs import MIXES, cluster, drawn_from, figures, trace
from gantree.sim.run import simulate
from gantree.sim.running.model import Checkpoints, RunningModel
from gantree.sim.workload import job_of

JOBS = 300
"""The first jobs of Muri's trace."""

LYRA_WAIT, LYRA_JCT = 1.53, 1.48
"""How many times shorter Lyra's queueing and completion times are, in the mean (EuroSys 2023)."""

GPU = "H100-80GB"

RIGID, ELASTIC = "rigid", "elastic"


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: mean wait and completion in hours, attempts of all jobs, GPU-hours lost."""

    wait_h: float
    jct_h: float
    attempts: int
    lost_gpu_h: float


def site() -> Cluster:
    """Return 16 nodes, 128 GPUs of the model GPU."""
    whole = cluster("dgx-h100")
    return replace(whole, nodes=whole.nodes[:16])


def rows(kind: str, seed: int) -> list[TraceJob]:
    """Return the jobs; where they are elastic, a drawn share may have from half to twice its members."""
    given = figures("reliability")
    share, checkpoint_s = given["elastic_share"].value, given["checkpoint_min"].value * 60
    saving = (replace(row, checkpoint_s=checkpoint_s) for row in trace("muri-trace3")[:JOBS])
    return [
        resizable(row) if kind == ELASTIC and _draw(row, seed) < share else row for row in saving
    ]


def resizable(row: TraceJob) -> TraceJob:
    """Return a job that may have from half to twice its members, at most all GPUs of the site."""
    given = figures("reliability")
    site_gpus = 8 * len(site().nodes)
    most = int(row.members * given["elastic_most"].value)
    return replace(
        row,
        elastic_min=max(1, ceil(row.members * given["elastic_least"].value)),
        elastic_max=max(row.members, min(most, site_gpus // row.gpus_per_member)),
    )


def _draw(row: TraceJob, seed: int) -> float:
    return Random(f"{seed}/{row.job_id}").random()  # noqa: S311 - a draw, not a secret


def run_case(case: tuple[str, str, int]) -> Ran:
    """Run the jobs; case: the mix of models, whether they are elastic, and a seed."""
    mix, kind, seed = case
    given = figures("reliability")
    start_s = given["restart_min"].value * 60
    saves = Checkpoints(save_s=given["save_s"].value, restore_s=given["restore_s"].value)
    result = simulate(
        site(),
        rows(kind, seed),
        replace(PRESETS["gantree"], restart_s=start_s),
        overheads=Overheads(start_s),
        running=RunningModel(step_time=True, checkpoints=saves),
        jobs=lambda row: drawn_from(mix, job_of(row), seed, GPU),
        seed=seed,
    )
    summary = result.summary()
    assert summary["finished"] == JOBS, "every job ends"
    return Ran(
        summary["wait_s"]["mean"] / 3600,
        summary["jct_s"]["mean"] / 3600,
        sum(row.attempts for row in result.jobs),
        summary["gpu_hours_lost"],
    )


def run(bench: Bench) -> Outcome:
    """Run rigid and elastic jobs with every mix and seed."""
    cases = [
        (mix, kind, seed) for mix in MIXES for kind in (RIGID, ELASTIC) for seed in bench.seeds
    ]
    ran = dict(zip(cases, bench.workers.map(run_case, cases), strict=True))
    found = {
        (mix, kind): [ran[mix, kind, seed] for seed in bench.seeds]
        for mix in MIXES
        for kind in (RIGID, ELASTIC)
    }
    why = "Lyra lends the GPUs of inference clusters as well, and its jobs change their size without a restart"
    return Outcome(
        verdicts=tuple(
            at_least(f"{what} {least}x shorter (mix: {mix})", _times(found, mix, field), least, "x", why)
            for mix in MIXES
            for what, field, least in (("waits are", "wait_h", LYRA_WAIT), ("completion times are", "jct_h", LYRA_JCT))
        ),
        tables=(
            Table(
                f"{JOBS} jobs on 128 H100, half of them elastic: means over seeds",
                ("mix", "jobs", "mean wait h", "mean completion h", "attempts", "GPU-hours lost"),
                tuple(_row(mix, kind, runs) for (mix, kind), runs in found.items()),
            ),
        ),
        plots=(_plot(found),),
    )  # fmt: skip


def _times(found: dict[tuple[str, str], list[Ran]], mix: str, field: str) -> float:
    rigid, elastic = (
        mean([getattr(each, field) for each in found[mix, kind]]) for kind in (RIGID, ELASTIC)
    )
    return float(rigid / elastic)


def _row(mix: str, kind: str, runs: list[Ran]) -> tuple[str, str, float, float, float, float]:
    return (
        mix,
        kind,
        mean([each.wait_h for each in runs]),
        mean([each.jct_h for each in runs]),
        mean([each.attempts for each in runs]),
        mean([each.lost_gpu_h for each in runs]),
    )


def _plot(found: dict[tuple[str, str], list[Ran]]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    bars = [
        {"mix": mix, "jobs": kind, "hours": mean([each.jct_h for each in runs])}
        for (mix, kind), runs in found.items()
    ]
    chart = charts.bars(bars, "mix", "hours", "jobs", y_title="mean completion, hours")
    return Plot("elastic", "Mean completion time by mix of models", charts.to_svg(chart))
