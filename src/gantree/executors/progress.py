"""What a job reports of itself: observations, which are not in the journal. Slow ranks that last become events."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The last report of an attempt; None for what it did not report. at is when, in seconds since 1970."""

    step: int
    loss: float | None
    samples_per_s: float | None
    step_s: float | None
    at: float


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The own times of one rank: the seconds before it entered the collective, by number of the step, newest last.

    gpus are those of its process: several where a process has several, none where it has none.
    """

    rank: int
    role: str
    node: str
    gpus: tuple[int, ...]
    own_s_of_step: dict[int, float]


@dataclass(frozen=True, slots=True)
class StepReports:
    """The own times of those ranks of an attempt that report any. at is when rank 0 reported, in seconds since 1970.

    parallelism is (axis, ways) in the order in which ranks count, the fastest axis first; empty where the job has none.
    """

    at: float
    world_size: int
    ranks: tuple[RankSteps, ...]
    parallelism: tuple[tuple[str, int], ...] = ()
