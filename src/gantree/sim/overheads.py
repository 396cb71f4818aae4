"""What a simulated cluster needs for each kind of order, in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AttemptOverheads:
    """What one attempt is known to have needed, as in `Overheads`; None: as all."""

    start_s: float | None = None
    stop_s: float | None = None
    save_s: float | None = None
    end_s: float | None = None


AS_ALL = AttemptOverheads()


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that a cluster needs for each kind of order; 0 by default.

    The default of 0 keeps replays of public traces comparable, whose run times include start-up. start_s is from
    the order to the moment all ranks work, stop_s from the order until nothing is left, save_s from a request for
    a checkpoint until it is durable; the gang does not work meanwhile. end_s is from the moment the work is done until
    that is known; who is told to stop meanwhile has ended by itself.

    together_s is for how long after an event a daemon takes others into the same decision, as it looks at its cluster
    now and then.

    start_s_of_job replaces start_s for the jobs that are in it, of_attempt what it tells of an attempt, by job and
    number. at_every_event is the rule of Muri's experiment: a start takes no time, but whenever anything happens on the
    cluster, every gang that works has worked so much less since the last time, never less than nothing. Whoever ends
    then has ended.
    """

    start_s: float = 0.0
    stop_s: float = 0.0
    save_s: float = 0.0
    end_s: float = 0.0
    together_s: float = 0.0
    start_s_of_job: Mapping[str, float] = field(default_factory=dict)
    of_attempt: Mapping[tuple[str, int], AttemptOverheads] = field(default_factory=dict)
    at_every_event: bool = False

    def of_start_s(self, job: str, attempt: int = 0) -> float:
        """What a start of this job costs, by whichever rule."""
        own = self.of_attempt.get((job, attempt), AS_ALL).start_s
        return self.start_s_of_job.get(job, self.start_s) if own is None else own

    def of_stop_s(self, job: str, attempt: int) -> float:
        """How long a stop of this attempt takes."""
        own = self.of_attempt.get((job, attempt), AS_ALL).stop_s
        return self.stop_s if own is None else own

    def of_save_s(self, job: str, attempt: int) -> float:
        """How long this attempt takes for a checkpoint that it is asked for."""
        own = self.of_attempt.get((job, attempt), AS_ALL).save_s
        return self.save_s if own is None else own

    def of_end_s(self, job: str, attempt: int) -> float:
        """How long it takes until the end of this attempt's work is known."""
        own = self.of_attempt.get((job, attempt), AS_ALL).end_s
        return self.end_s if own is None else own
