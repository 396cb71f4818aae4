"""Trained models: what jobs of a trace train, where the trace gives a name only, or not even that.

A `TrainedModel` gives a job its arithmetic and traffic; a `ModelMix` says how often jobs of some size train which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from types import MappingProxyType

from gantree.model.jobs import Job, Traffic, Transformer


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model that jobs train, on any number of GPUs.

    Either trains (its batch is that of one replica) or traffic is there, as in `Job`. parallelism gives the ways that
    are not data. source says where the figures are from.
    """

    name: str
    source: str
    trains: Transformer | None = None
    traffic: Traffic | None = None
    parallelism: tuple[tuple[str, int], ...] = ()
    overlap: tuple[tuple[str, float], ...] = ()

    def trained_by(self, job: Job) -> Job:
        """Return the job as one that trains this model on all its GPUs.

        Ways that the job tells stay as they are. Those of the model that do not divide the GPUs are cut to the greatest
        common divisor. The batch grows with the replicas.
        """
        ways = job.parallelism or self._ways(job.gpus)
        replicas = job.gpus
        for axis, number in ways:
            replicas //= 1 if axis in {"expert", "data"} else number
        trains = self.trains and replace(self.trains, batch=self.trains.batch * max(1, replicas))
        return replace(
            job, trains=trains, traffic=self.traffic, parallelism=ways, overlap=self.overlap
        )

    def _ways(self, gpus: int) -> tuple[tuple[str, int], ...]:
        ways, left = [], max(1, gpus)
        for axis, number in sorted(self.parallelism, key=lambda way: way[0] == "expert"):
            fitting = gcd(number, left)
            left //= 1 if axis == "expert" else fitting
            ways.append((axis, fitting))
        return tuple(way for way in ways if way[1] > 1)


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Jobs of least to most GPUs (None: any larger number), and how often they train which model."""

    least: int
    most: int | None
    weight_of_model: Mapping[str, float]

    def holds(self, gpus: int) -> bool:
        """Return whether a job of so many GPUs is in the class."""
        return self.least <= gpus and (self.most is None or gpus <= self.most)


@dataclass(frozen=True, slots=True)
class ModelMix:
    """Which model a job trains, by its GPUs. Classes do not overlap."""

    name: str
    classes: tuple[SizeClass, ...]

    def weights(self, gpus: int) -> Mapping[str, float]:
        """Return how often a job of so many GPUs trains which model; nothing where no class holds it."""
        return next(
            (each.weight_of_model for each in self.classes if each.holds(gpus)),
            MappingProxyType({}),
        )
