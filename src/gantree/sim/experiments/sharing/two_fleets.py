"""A fleet for training, and fleets that training and inference share: jobs, a service, and how they fare.

Training is jobs of Philly, stopped where serving needs their GPUs, and resumed from checkpoints every 15 minutes. The
number of replicas of the service is what the autoscaler recommends (`sim.running.autoscaled`). A replica is full at the
highest load at which the p99 of a full GPU is what it was before.
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
    WHOLE,
    Part,
    demand,
    sharing_figure,
)
from gantree.sim.experiments.sharing.sharing import nodes_of
from gantree.sim.record import Span
from gantree.sim.results import JobRow
from gantree.sim.run import Simulation
from gantree.sim.running.model import Checkpoints, RunningModel, Service, ServiceScaling

GPUS_OF_NODE = 8
WEEK_DAYS = 7
START_S = 120.0
"""From the start of a replica until it is ready, with the load of its model: an assumption."""


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
    """A fleet of so many nodes with the training jobs of a seed; with replicas on a part, at a load each, or none.

    target and spare are the service's: the part of a full replica that the autoscaler keeps in use, and how many
    replicas it keeps beyond that.
    """

    nodes: int
    seed: int
    part: Part | None = None
    load: float = 0.0
    target: float = 0.8
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Fared:
    """How a fleet fared.

    busy is the share of its GPUs that did useful work; jct_s is the mean time from submission to end of training jobs,
    lost_gpu_h what they lost by being stopped. late is the part of the requests that found all replicas full,
    replicas_gpu_h what replicas held.
    """

    busy: float
    jct_s: float
    unfinished: int
    preemptions: int
    lost_gpu_h: float
    late: float
    replicas_gpu_h: float


def service_of(case: Case) -> Service:
    """Return the service whose load is that of the fleet of inference before."""
    assert case.part is not None, "there are replicas"
    full = busy_at_peak() / case.load
    trough = fleets("trough")
    curve = tuple((float(at_s), _share(at_s, trough)) for at_s in range(0, DAY_S, STEP_S))
    scaling = ServiceScaling(case.target, case.spare, start_s=START_S)
    return Service(
        "inference", int(case.part is WHOLE), round(trough * full), round(full), curve, "serving",
        gpu_share=case.part.share, mig=case.part.mig, scaling=scaling,
    )  # fmt: skip


def _share(at_s: float, trough: float) -> float:
    """The share of the way from trough to peak, of requests."""
    return (demand(at_s, trough) - trough) / (1 - trough)


def run_case(case: Case) -> Fared:
    """Run a fleet until the last job of training is over."""
    jobs = training_rows(case.seed)
    costs = Checkpoints(save_s=fleets("save_s"), restore_s=fleets("restore_s"))
    services = () if case.part is None else (service_of(case),)
    running = RunningModel(checkpoints=costs, services=services)
    policy, overheads = PRESETS["gantree"], Overheads()
    simulation = Simulation(nodes_of(case.nodes), jobs, policy, overheads, running=running, seed=case.seed)  # fmt: skip
    while simulation.step():
        pass
    result = simulation.result()
    useful_gpu_s = _useful_gpu_s(simulation.record.spans, result.jobs)
    if services:
        useful_gpu_s += fleets("inference_busy") * inference_gpus() * half_of_run_s()
    second = [row for row in result.jobs if row.submit_s >= half_of_run_s()]
    busy = useful_gpu_s / (case.nodes * GPUS_OF_NODE * half_of_run_s())
    late = result.served["inference"].late_share if services else 0.0
    return _fared(second, result.replicas, busy, late)


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


def _fared(
    trained: Sequence[JobRow], replicas: Sequence[JobRow], busy: float, late: float
) -> Fared:
    ended_s = [job.jct_s for job in trained if job.finished and job.jct_s is not None]
    return Fared(
        busy, mean(ended_s), len(trained) - len(ended_s), sum(job.preemptions for job in trained),
        sum(job.gpu_s_lost for job in trained) / 3600, late, sum(row.gpu_s_held for row in replicas) / 3600,
    )  # fmt: skip


def busy_at_peak() -> float:
    """Return how many replicas the requests of the peak would keep busy all the time, each alone on a GPU."""
    steps = range(0, DAY_S, STEP_S)
    of_day = sum(demand(at_s, fleets("trough")) for at_s in steps) / len(steps)
    return fleets("inference_busy") * inference_gpus() / sharing_figure("width") / of_day


def inference_gpus() -> int:
    """Return the GPUs of the fleet of inference."""
    return int(fleets("inference_nodes")) * GPUS_OF_NODE


def load_before() -> float:
    """Return the load of a replica at the peak, each on a GPU of its own."""
    return busy_at_peak() / inference_gpus()
