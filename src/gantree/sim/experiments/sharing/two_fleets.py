"""A fleet for training, and fleets that training and inference share: jobs, replicas, and how they fare.

Training is jobs of Philly, stopped where serving needs their GPUs, and resumed from checkpoints every 15 minutes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import mean
from gantree.sim.experiments.inputs import figures, trace
from gantree.sim.experiments.sharing.replica import (
    DAY_S,
    STEP_S,
    Part,
    demand,
    mean_p99,
    replica_rows,
    sharing_figure,
)
from gantree.sim.experiments.sharing.sharing import nodes_of
from gantree.sim.record import Span
from gantree.sim.results import JobRow
from gantree.sim.run import Simulation
from gantree.sim.running.model import Checkpoints, RunningModel

GPUS_OF_NODE = 8
WEEK_DAYS = 7


def fleets(name: str) -> float:
    """Return the likeliest figure of inputs/fleets.csv."""
    return figures("fleets")[name].value


def training_share() -> float:
    """Return the share of training in all GPUs that makes the two utilisations the overall one."""
    training, inference = fleets("training_busy"), fleets("inference_busy")
    return (fleets("overall_busy") - inference) / (training - inference)


def training_rows(seed: int) -> tuple[TraceJob, ...]:
    """Return jobs of philly-week, drawn until they keep the training fleet as busy as the claim says.

    The times of the week are pressed into half of a run, and the other half repeats them; it is the one that is
    measured. A job that is larger than the training fleet is left out.
    """
    half_s, longest_s = half_of_run_s(), 3600 * fleets("longest_job_h")
    gpus = GPUS_OF_NODE * fleets("training_nodes")
    wanted_gpu_s = fleets("training_busy") * gpus * half_s
    rows = [row for row in trace("philly-week") if row.members * row.gpus_per_member <= gpus]
    first_s = min(row.submit_s for row in rows)
    Random(seed).shuffle(rows)  # noqa: S311 - a draw of a simulation, not a secret
    drawn: list[TraceJob] = []
    for row in rows:
        duration_s = min(row.duration_s, longest_s)
        gpu_s = duration_s * row.members * row.gpus_per_member
        if gpu_s <= wanted_gpu_s:
            wanted_gpu_s -= gpu_s
            submit_s = (row.submit_s - first_s) * half_s / (WEEK_DAYS * DAY_S)
            drawn.append(_training(row, submit_s, duration_s))
    again = [_again(row, half_s) for row in drawn]
    return tuple(sorted((*drawn, *again), key=lambda row: row.submit_s))


def half_of_run_s() -> float:
    """Return the seconds of half a run."""
    return fleets("days") * DAY_S / 2


def _again(row: TraceJob, after_s: float) -> TraceJob:
    return replace(row, job_id=f"{row.job_id}-again", submit_s=row.submit_s + after_s)


def _training(row: TraceJob, submit_s: float, duration_s: float) -> TraceJob:
    saves_s = fleets("checkpoint_s")
    return replace(
        row, submit_s=submit_s, duration_s=duration_s, queue="training", priority="batch", checkpoint_s=saves_s
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet of so many nodes with the training jobs of a seed; with replicas on a part, at a load each, or none."""

    nodes: int
    seed: int
    part: Part | None = None
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Fared:
    """How a fleet fared.

    busy is the share of its GPUs that did useful work; jct_s is the mean time from submission to end of training jobs,
    lost_gpu_h what they lost by being stopped, late_s how long replicas waited for room (mean and longest).
    """

    busy: float
    jct_s: float
    unfinished: int
    preemptions: int
    lost_gpu_h: float
    late_s: float
    latest_s: float


def run_case(case: Case) -> Fared:
    """Run a fleet. Replicas come for a day more than jobs, so that the last jobs have to share, too."""
    days, trough = int(fleets("days")), fleets("trough")
    jobs = training_rows(case.seed)
    replicas: list[TraceJob] = []
    if case.part is not None:
        replicas = list(replica_rows(case.part, busy_at_peak(), case.load, days + 1, trough))
    rows = sorted((*jobs, *replicas), key=lambda row: row.submit_s)
    costs = Checkpoints(save_s=fleets("save_s"), restore_s=fleets("restore_s"))
    simulation = Simulation(
        nodes_of(case.nodes), rows, PRESETS["gantree"], Overheads(), running=RunningModel(checkpoints=costs)
    )  # fmt: skip
    while simulation.step():
        pass
    found = {row.job_id: row for row in simulation.result().jobs}
    trained = [found[row.job_id] for row in jobs]
    served = [found[row.job_id] for row in replicas]
    useful_gpu_s = _useful_gpu_s(simulation.record.spans, trained)
    if replicas:
        useful_gpu_s += fleets("inference_busy") * inference_gpus() * half_of_run_s()
    second = [row for row in trained if row.submit_s >= half_of_run_s()]
    busy = useful_gpu_s / (case.nodes * GPUS_OF_NODE * half_of_run_s())
    return _fared(second, served, busy)


def _useful_gpu_s(spans: Sequence[Span], jobs: Sequence[JobRow]) -> float:
    """GPU-seconds of useful work of jobs in the second half: what they hold then, less what is not kept."""
    names = {f"t{job.job_id}" for job in jobs}
    from_s, to_s = half_of_run_s(), 2 * half_of_run_s()
    held = held_then = 0.0
    for span in spans:
        if span.job in names and span.to_s is not None:
            held += span.gpus * (span.to_s - span.from_s)
            held_then += span.gpus * max(0.0, min(span.to_s, to_s) - max(span.from_s, from_s))
    return held_then * sum(job.useful_gpu_s for job in jobs) / held


def _fared(trained: Sequence[JobRow], served: Sequence[JobRow], busy: float) -> Fared:
    ended_s = [job.jct_s for job in trained if job.finished and job.jct_s is not None]
    late_s = [float("inf") if row.wait_s is None else row.wait_s for row in served] or [0.0]
    return Fared(
        busy, mean(ended_s), len(trained) - len(ended_s), sum(job.preemptions for job in trained),
        sum(job.gpu_s_lost for job in trained) / 3600, mean(late_s), max(late_s),
    )  # fmt: skip


def busy_at_peak() -> float:
    """Return how many replicas the requests of the peak would keep busy all the time, each alone on a GPU."""
    steps = range(0, DAY_S, STEP_S)
    of_day = sum(demand(at_s, fleets("trough")) for at_s in steps) / len(steps)
    return fleets("inference_busy") * inference_gpus() / sharing_figure("width") / of_day


def inference_gpus() -> int:
    """Return the GPUs of the fleet of inference."""
    return int(fleets("inference_nodes")) * GPUS_OF_NODE


def peak_p99(case: Case, seeds: tuple[int, ...]) -> float:
    """Return the p99 at the peak, where replicas that find no room leave their load to the others."""
    assert case.part is not None, "there are replicas"
    slots = case.nodes * GPUS_OF_NODE * case.part.per_gpu
    load = max(case.load, busy_at_peak() / slots)
    return mean_p99(case.part, load, seeds)


def load_before() -> float:
    """Return the load of a replica at the peak, each on a GPU of its own."""
    return busy_at_peak() / inference_gpus()
