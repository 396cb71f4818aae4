"""What is counted over time: GPU-seconds and events, by bucket, queue, user and GPU model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gantree.accounting.buckets import Bucket
from gantree.accounting.ended_jobs import EVERYTHING, Scope

NO_MODEL = ""
"""The model of GPUs whose model is unknown, and of what happens to a job that has no place."""


class UsageKey(NamedTuple):
    """Whose use, of which GPU model. Capacity is nobody's: of queue and user ""."""

    queue: str
    user: str
    model: str


class WaitKey(NamedTuple):
    """Whose waits, in which bin (`waits`)."""

    queue: str
    user: str
    bin: int


@dataclass(slots=True)
class UsageAmounts:
    """Amounts of one bucket and key.

    capacity are GPUs that there are, allocated those that gangs held and did not rest on, used those on which all
    processes ran, lost the part of it whose work was done again. started counts attempts, preempted stops for others.
    """

    capacity_gpu_s: float = 0.0
    allocated_gpu_s: float = 0.0
    used_gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    submitted: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    timed_out: int = 0
    preempted: int = 0


@dataclass(slots=True)
class WaitAmounts:
    """Jobs that were placed for the first time, and how long they had waited altogether."""

    jobs: int = 0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageChange:
    """What is added to rows. counted_to: up to when each key's use is counted, all: up to when everybody's is."""

    usage: dict[tuple[Bucket, UsageKey], UsageAmounts]
    waits: dict[tuple[Bucket, WaitKey], WaitAmounts]
    counted_to: dict[UsageKey, float]
    all_counted_to: float
    is_minute_over: bool


@dataclass(frozen=True, slots=True)
class CountedTo:
    """Up to which moments use is counted: everybody's, and later ones of some keys. 0: nothing ever was."""

    all_to: float = 0.0
    of_key: Mapping[UsageKey, float] = field(default_factory=dict)


By = Literal["all", "queue", "user", "model"]


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Sums of each step of a period, by queue, user or model. since and until are whole steps.

    queue is one with all below it; None, and a user of None: all. scopes: use of one of them, and capacity.
    """

    since: int
    until: int
    step: int
    by: By = "all"
    queue: str | None = None
    user: str | None = None
    scopes: tuple[Scope, ...] = EVERYTHING
