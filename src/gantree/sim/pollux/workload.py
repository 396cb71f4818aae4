"""Pollux' jobs with the requests of its tuned baselines: replicas of one GPU each, and a batch size that stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path

from gantree.model.errors import BadInput
from gantree.sim.pollux.profiles import EPOCHS, Placement, Profile, rows_of

GPUS_OF_NODE, NODES = 4, 16
WORKLOADS = tuple(range(1, 9))
ROUNDING = 1e-8


@dataclass(frozen=True)
class PolluxJob:
    """One job. accumulated is how often a replica computes a local batch before it synchronises, less one."""

    name: str
    arrival_s: float
    replicas: int
    profile: Profile = field(repr=False, compare=False)
    local_batch: int
    accumulated: int

    @cached_property
    def iterations(self) -> list[float]:
        """Iterations of each epoch."""
        return self.profile.iterations(self.local_batch * (self.accumulated + 1) * self.replicas)

    def iteration_s(self, placement: Placement) -> float:
        """Seconds of an iteration with so many replicas on each node."""
        step_s, synchronising_s = self.profile.times(placement, self.local_batch)
        return step_s + (step_s - synchronising_s) * self.accumulated

    def work_s(self, placement: Placement) -> float:
        """Seconds that it runs undisturbed."""
        return sum(self.iterations) * self.iteration_s(placement)


def packed(replicas: int) -> Placement:
    """As few nodes as can be."""
    whole, rest = divmod(replicas, GPUS_OF_NODE)
    return (GPUS_OF_NODE,) * whole + ((rest,) if rest else ())


def read_profiles(directory: Path) -> dict[str, Profile]:
    """The profiles below the simulator's directory. Raises NotFound and BadInput."""
    return {name: Profile(directory / "traces" / name) for name in EPOCHS}


def read_workload(directory: Path, number: int, profiles: Mapping[str, Profile]) -> list[PolluxJob]:
    """The jobs of a workload in the order of the file. Raises NotFound and BadInput."""
    path = directory / "workloads" / f"workload-{number}.csv"
    columns = ("name", "time", "application", "num_replicas", "batch_size")
    jobs = []
    for line, row in enumerate(rows_of(path, columns), start=2):
        try:
            jobs.append(_job(row, profiles))
        except (ValueError, KeyError) as error:
            raise BadInput(f"{path}: line {line}: {error}") from error
    return jobs


def _job(row: Mapping[str, str], profiles: Mapping[str, Profile]) -> PolluxJob:
    profile, replicas = profiles[row["application"]], int(row["num_replicas"])
    local_batch, accumulated = split(profile, int(row["batch_size"]), replicas)
    return PolluxJob(row["name"], float(row["time"]), replicas, profile, local_batch, accumulated)


def split(profile: Profile, batch: int, replicas: int) -> tuple[int, int]:
    """A batch as local batches that fit a GPU, and how often gradients are accumulated, as their simulator does.

    A single replica with more than the initial batch accumulates at least once: it needs two samples of a gradient.
    """
    local = ceil(batch / replicas - ROUNDING)
    accumulated = ceil(local / profile.max_local_batch - ROUNDING) - 1
    if replicas == 1 and batch > profile.init_batch:
        accumulated = max(1, accumulated)
    of_one = ceil(local / (accumulated + 1) - ROUNDING)
    return min(of_one, profile.max_batch // (replicas * (accumulated + 1))), accumulated
