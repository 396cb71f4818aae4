"""Parts of the state of a job, each replaced as a whole. Times are seconds of `Event.observed_at`."""

from dataclasses import dataclass, replace

from gantree.core.ledger.measured_attempt import NOT_MEASURED, MeasuredAttempt
from gantree.model.replicas import Endpoint
from gantree.policy.amounts import WHOLE


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """The time slices of an attempt on GPUs that it shares with other gangs.

    suspended: another gang has the time slice. turns counts suspensions and resumptions; turned_at is the time of the
    last one, turn_ends_at the end of the current time slice. suspended_s is the sum of completed suspensions.
    """

    suspended: bool = False
    turn_ends_at: float | None = None
    turns: int = 0
    turned_at: float | None = None
    suspended_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MeteredUse:
    """Metering of a job: its usage until metered_at is in the accounts (`core.ledger.usage`).

    gpus_of_model is what it holds, parts of GPUs as parts, gpus_of_device the same as (GPU model, device, GPUs).
    hosts_of_model are (GPU model, cores, GiB of memory) of what it holds, by the model of the nodes.
    spent is (GPU model, GPU-seconds held, GPU-seconds wasted), waited_s the seconds that it waited.

    measured is (GPU model, useful GPU-seconds, idle GPU-seconds) of all attempts, without those that were wasted.
    """

    metered_at: float | None = None
    gpus_of_model: tuple[tuple[str, float], ...] = ()
    spent: tuple[tuple[str, float, float], ...] = ()
    waited_s: float = 0.0
    measured: tuple[tuple[str, float, float], ...] = ()
    measured_attempt: MeasuredAttempt = NOT_MEASURED
    gpus_of_device: tuple[tuple[str, str, float], ...] = ()
    hosts_of_model: tuple[tuple[str, float, float], ...] = ()

    @property
    def devices(self) -> tuple[tuple[str, str, float], ...]:
        """gpus_of_device; of what was placed before devices were told apart, as whole GPUs."""
        return self.gpus_of_device or tuple(
            (model, WHOLE, gpus) for model, gpus in self.gpus_of_model
        )


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that makes each step of its gang longer by a factor, where it runs, and since when."""

    rank: int
    node: str
    slowdown: float
    since: float


@dataclass(frozen=True, slots=True)
class Idleness:
    """What is known of a job that may be idle, and of its lease.

    since, seen_at, warned_at, reclaim_at and action are of the attempt: since when its GPUs have not computed (None:
    they do, or are not measured), when that was last measured, when it was warned, and of which action from when on.
    warnings counts those of the attempt, reclaims those of the job since it was released. extended_until: the end
    of its lease. exempt: it is never reclaimed.
    """

    since: float | None = None
    seen_at: float = 0.0
    warned_at: float | None = None
    reclaim_at: float | None = None
    action: str = ""
    warnings: int = 0
    reclaims: int = 0
    extended_until: float | None = None
    exempt: bool = False

    def over(self) -> "Idleness":
        """What remains once it computes again, or is not measured."""
        return replace(self, since=None, seen_at=0.0, warned_at=None, reclaim_at=None, action="")


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What is known of a replica of a service beside its job.

    endpoints, ready, was_ready, since (when ready changed), reason (why it is not) and ready_by are of the attempt;
    ready_by: when it is stopped unless it has been ready by then. drain_ends_at: when it is stopped at the latest,
    since it gets no new requests any more (None: it gets them), and why. gone_by: when an attempt that drains because
    its place is taken has ended at the latest.
    """

    endpoints: tuple[Endpoint, ...] = ()
    ready: bool = False
    was_ready: bool = False
    since: float | None = None
    reason: str = ""
    ready_by: float | None = None
    drain_ends_at: float | None = None
    drain_reason: str = ""
    gone_by: float | None = None

    @property
    def draining(self) -> bool:
        """Whether it gets no new requests, since it is to end."""
        return self.drain_ends_at is not None

    def over(self) -> "ReplicaState":
        """What remains at the end of an attempt."""
        return ReplicaState(drain_ends_at=self.drain_ends_at, drain_reason=self.drain_reason)


NO_REPLICA = ReplicaState()
NOT_IDLE = Idleness()
NO_SLICES = TimeSlices()
NOT_METERED = MeteredUse()
