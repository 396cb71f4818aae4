"""Kueue's three test configurations and their published results (means of ten CI runs)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NOMINAL_CPUS, BORROWED_CPUS = 20.0, 100.0
"""Quota of a queue, and what it may borrow above it."""


@dataclass(frozen=True, slots=True)
class WorkClass:
    """Workloads of one size: `count` in each queue, one every every_s seconds, each of pods of cpus for run_s seconds.

    required, preferred and sliced are how many of them must stay in a rack, would like to, and come in slices (of
    slice_pods) that each stay in a rack; all 0 where there is no topology.
    """

    name: str
    count: int
    pods: int
    cpus: float
    run_s: float
    every_s: float
    priority: int
    required: int = 0
    preferred: int = 0
    sliced: int = 0
    slice_pods: int = 1

    @property
    def all_cpus(self) -> float:
        """CPUs of one workload."""
        return self.pods * self.cpus


@dataclass(frozen=True, slots=True)
class Kueue:
    """What Kueue took: seconds of wall clock in all, and mean seconds to admission by class (the middle of a range)."""

    wall_s: float
    admission_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """One test: cohorts of queues, each queue with the same classes. racks and nodes_of_rack: 0 without topology."""

    name: str
    cohorts: int
    queues_of_cohort: int
    classes: tuple[WorkClass, ...]
    kueue: Kueue
    racks: int = 0
    nodes_of_rack: int = 0

    @property
    def cohort_cpus(self) -> float:
        """The quota of a cohort, to which no other cohort lends."""
        return self.queues_of_cohort * NOMINAL_CPUS

    @property
    def workloads(self) -> int:
        """In all queues."""
        return self.cohorts * self.queues_of_cohort * sum(kind.count for kind in self.classes)


TAS = Shape(
    "tas",
    5,
    6,
    (
        WorkClass("small", 350, 2, 0.5, 0.2, 0.1, 50, 120, 120, 110, 1),
        WorkClass("medium", 100, 4, 1.25, 0.5, 0.5, 100, 34, 33, 33, 2),
        WorkClass("large", 50, 8, 2.5, 1.0, 1.2, 200, 17, 17, 16, 4),
    ),
    Kueue(401.5, {"large": 38.75, "medium": 106.5, "small": 242.5}),
    racks=10,
    nodes_of_rack=64,
)
BASELINE = Shape(
    "baseline",
    5,
    6,
    (
        WorkClass("small", 350, 1, 1, 0.2, 0.1, 50),
        WorkClass("medium", 100, 1, 5, 0.5, 0.5, 100),
        WorkClass("large", 50, 1, 20, 1.0, 1.2, 200),
    ),
    Kueue(351.0, {"large": 16.5, "medium": 76.8, "small": 215.0}),
)
LARGE_SCALE = Shape(
    "large-scale",
    10,
    100,
    (
        WorkClass("small", 35, 1, 1, 0.15, 0.06, 50),
        WorkClass("medium", 11, 1, 5, 0.35, 0.3, 100),
        WorkClass("large", 4, 1, 20, 0.7, 0.7, 200),
    ),
    Kueue(1179.0),
)
SHAPES = {shape.name: shape for shape in (TAS, BASELINE, LARGE_SCALE)}
