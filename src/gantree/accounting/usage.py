"""What is counted over time: GPU-seconds by purpose and events, by bucket, queue, user, GPU model, project and device.

Each GPU-second that there is has one purpose. Those that a gang held are starting, restart, checkpoint, useful, idle,
lost or, what is left of them, unmeasured; the others are down, held, reserved, stranded or, what is left, free.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gantree.accounting.buckets import Bucket
from gantree.accounting.ended_jobs import EVERYTHING, Scope

NO_MODEL = ""
"""The model of GPUs whose model is unknown, and of what happens to a job that has no place."""
ALLOCATED_FOR = ("starting", "restart", "checkpoint", "useful", "idle", "lost", "unmeasured")
"""Purposes of GPU-seconds that a gang held; the last one is the rest."""
NOT_ALLOCATED = ("down", "held", "reserved", "stranded", "free")
"""Purposes of all other GPU-seconds; the last one is the rest."""
PURPOSES = (*ALLOCATED_FOR, *NOT_ALLOCATED)
WORD_OF = {purpose: purpose for purpose in PURPOSES} | {"held": "claimed"}
"""What people read: GPU-hours that gangs held are "held", so what is held for a claim is "claimed"."""


class UsageKey(NamedTuple):
    """Whose use, of which GPU model, for which project, of which device.

    Capacity, and what is not allocated, is nobody's: of queue, user and project "". project is that of the job. device
    is "" for whole GPUs, the profile of an instance of MIG, or "share" (`policy.amounts`).
    """

    queue: str
    user: str
    model: str
    project: str = ""
    device: str = ""


class WaitKey(NamedTuple):
    """Whose waits, in which bin (`waits`)."""

    queue: str
    user: str
    bin: int


@dataclass(slots=True)
class UsageAmounts:
    """Amounts of one bucket and key.

    capacity are GPUs that there are, allocated those that gangs held and did not rest on, used those on which all
    processes ran. Of allocated: starting from the placement of a first attempt until all processes run; restart the
    same of later attempts, and from the order to stop until nothing is left; checkpoint while a gang saves before it
    stops; useful and idle as counters told of gangs that ran; lost, work that is done again. Of the others: down on
    nodes that are not usable, held by claims, reserved for promised starts, stranded where nothing that machines of the
    cluster offer can use them. waited_s are seconds of jobs. slower are the part of allocated that gangs would not have
    needed at their best places; cpu and memory_GiB the cores and the memory that they held, and there are, by the GPU
    model of the nodes. energy_kWh is what GPUs drew in powered of the GPU-seconds of which counters told; nvlink_GB and
    nic_GB what was sent meanwhile. started counts attempts, preempted stops for others.

    Useful and idle are counted where a gang ran, and lost when that is known: it is taken out of useful and idle then,
    so these, and what is left unmeasured, may be less than nothing in a bucket, and never in all.
    """

    capacity_gpu_s: float = 0.0
    allocated_gpu_s: float = 0.0
    used_gpu_s: float = 0.0
    starting_gpu_s: float = 0.0
    restart_gpu_s: float = 0.0
    checkpoint_gpu_s: float = 0.0
    useful_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    down_gpu_s: float = 0.0
    held_gpu_s: float = 0.0
    reserved_gpu_s: float = 0.0
    stranded_gpu_s: float = 0.0
    waited_s: float = 0.0
    slower_gpu_s: float = 0.0
    cpu_s: float = 0.0
    memory_GiB_s: float = 0.0
    powered_gpu_s: float = 0.0
    energy_kWh: float = 0.0
    nvlink_GB: float = 0.0
    nic_GB: float = 0.0
    capacity_cpu_s: float = 0.0
    capacity_memory_GiB_s: float = 0.0
    submitted: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    timed_out: int = 0
    preempted: int = 0

    @property
    def unmeasured_gpu_s(self) -> float:
        """Allocated, and of no other purpose: gangs ran, and no counters told what their GPUs did."""
        told = self.useful_gpu_s + self.idle_gpu_s + self.lost_gpu_s
        return (
            self.allocated_gpu_s
            - self.starting_gpu_s
            - self.restart_gpu_s
            - self.checkpoint_gpu_s
            - told
        )

    @property
    def free_gpu_s(self) -> float:
        """Neither allocated nor of another purpose; 0 for amounts that are of no capacity, as those of a queue."""
        if not self.capacity_gpu_s:
            return 0.0
        taken = self.down_gpu_s + self.held_gpu_s + self.reserved_gpu_s + self.stranded_gpu_s
        return self.capacity_gpu_s - self.allocated_gpu_s - taken


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


By = Literal["all", "queue", "user", "model", "project", "device"]


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Sums of each step of a period, by queue, user, model, project or device.

    step is one of `steps.STEPS` in seconds; since and until are whole steps.
    queue is one with all below it; None, and a user of None: all. scopes: use of one of them, and capacity.
    """

    since: int
    until: int
    step: int
    by: By = "all"
    queue: str | None = None
    user: str | None = None
    scopes: tuple[Scope, ...] = EVERYTHING
