"""Placements compared: gantree's, and baselines blind to the topology, under one policy and one model of running."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp, fsum, log

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.model.jobs import Job, TopologySpec
from gantree.policy.rules import PlacementRule, Policy
from gantree.sim.experiments.inputs import cluster, drawn_from, lingjun, trace
from gantree.sim.results import JobRow, Result
from gantree.sim.run import simulate
from gantree.sim.running.model import RunningModel
from gantree.sim.workload import job_of

GANTREE: PlacementRule = "topology"
BLIND: tuple[PlacementRule, ...] = ("first-fit", "best-fit", "random")

SHARED_LINKS = RunningModel(step_time=True, contention=True)
"""Steps as long as the placement makes them, and up-links that jobs share."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cluster and the trace that runs on it; members (pods) have at most gpus_each GPUs."""

    cluster: str
    trace: str
    gpus_each: int

    @property
    def name(self) -> str:
        """The cluster, and how large its pods are."""
        return f"{self.cluster}, pods of {'1 GPU' if self.gpus_each == 1 else f'{self.gpus_each} GPUs'}"

    def site(self) -> Cluster:
        """Return the cluster; "lingjun-N" are the first N hosts of Lingjun."""
        name, _, hosts = self.cluster.partition("lingjun-")
        return cluster(self.cluster) if name else lingjun(int(hosts))

    def gpu(self) -> str | None:
        """Return the model of the GPUs, of the first node for all."""
        site = self.site()
        return site.machines[site.nodes[0].machine].gpu

    def rows(self) -> list[TraceJob]:
        """Return the trace, its gangs cut into members that fit a node."""
        return [self._cut(row) for row in trace(self.trace)]

    def _cut(self, row: TraceJob) -> TraceJob:
        gpus = row.members * row.gpus_per_member
        each = next(size for size in range(min(self.gpus_each, gpus), 0, -1) if gpus % size == 0)
        return replace(row, members=gpus // each, gpus_per_member=each)


FLEETS = (
    Fleet("v100-100g", "muri-trace3", 8),
    Fleet("v100-100g", "muri-trace3", 1),
    Fleet("ethernet-25g", "muri-trace3", 1),
    Fleet("lingjun-68", "philly-week", 8),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a fleet, a mix, a placement, what jobs ask of the topology ("none", or key and tier), a seed."""

    fleet: Fleet
    mix: str
    placement: PlacementRule
    seed: int
    asked: tuple[str, str] | None = None


def policy_of(run: Run) -> Policy:
    """Return the preset `backfill` with a placement: arrival order, reservations, no preemption."""
    return replace(PRESETS["backfill"], placement=run.placement, placement_seed=run.seed)


def result_of(run: Run, running: RunningModel = SHARED_LINKS) -> Result:
    """Simulate a run. Users know their run times."""
    return simulate(
        run.fleet.site(),
        run.fleet.rows(),
        policy_of(run),
        running=running,
        seed=run.seed,
        jobs=lambda row: job_in(run, row),
    )


def job_in(run: Run, row: TraceJob) -> Job:
    """Return the job of a row in a run: the model that the mix draws, and what it asks of the topology."""
    job = drawn_from(
        run.mix, replace(job_of(row), expected_s=row.duration_s), run.seed, run.fleet.gpu()
    )
    if run.asked is None or job.gpus == 1:
        return job
    key, tier = run.asked
    wish = TopologySpec(required=tier) if key == "required" else TopologySpec(preferred=tier)
    return replace(job, topology=wish)


def stretch_of_job(rows: Iterable[JobRow], *, least_gpus: int = 2) -> dict[str, float]:
    """Return by how much longer than at its ideal place each finished job of so many GPUs worked."""
    return {
        row.job_id: row.stretch
        for row in rows
        if row.finished and row.stretch is not None and row.gpus >= least_gpus
    }


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of positive values, at least one."""
    return exp(fsum(map(log, values)) / len(values))


def ratios(ours: dict[str, float], theirs: dict[str, float]) -> list[float]:
    """Return for each job in both by how much longer it works there than here, rising."""
    return sorted(theirs[job] / ours[job] for job in ours if job in theirs)
