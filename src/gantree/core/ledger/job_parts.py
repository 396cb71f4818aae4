"""Parts of the state of a job, each replaced as a whole. Times are seconds of `Event.observed_at`."""

from dataclasses import dataclass


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
class MeasuredAttempt:
    """How far it is known what the GPUs of the last attempt did.

    counted_s are seconds of its run that are measured, late_s those that may still be after its end, unsaved_useful and
    unsaved_idle the GPU-seconds that were measured since its last checkpoint.
    """

    counted_s: float = 0.0
    late_s: float = 0.0
    unsaved_useful: float = 0.0
    unsaved_idle: float = 0.0


NOT_MEASURED = MeasuredAttempt()


@dataclass(frozen=True, slots=True)
class MeteredUse:
    """Metering of a job: its usage until metered_at is in the accounts (`core.ledger.usage`).

    gpus_of_model is what it holds, parts of GPUs as parts. spent is (GPU model, GPU-seconds held, GPU-seconds wasted),
    waited_s the seconds that it waited.

    measured is (GPU model, useful GPU-seconds, idle GPU-seconds) of all attempts, without those that were wasted.
    """

    metered_at: float | None = None
    gpus_of_model: tuple[tuple[str, float], ...] = ()
    spent: tuple[tuple[str, float, float], ...] = ()
    waited_s: float = 0.0
    measured: tuple[tuple[str, float, float], ...] = ()
    measured_attempt: MeasuredAttempt = NOT_MEASURED


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that makes each step of its gang longer by a factor, where it runs, and since when."""

    rank: int
    node: str
    slowdown: float
    since: float


NO_SLICES = TimeSlices()
NOT_METERED = MeteredUse()
