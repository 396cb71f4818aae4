"""What a simulated cluster needs for each kind of order, in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that a cluster needs for each kind of order; 0 by default.

    The default of 0 keeps replays of public traces comparable, whose run times include start-up. start_s is from
    the order to the moment all ranks work, stop_s from the order until nothing is left, save_s from a request for
    a checkpoint until it is durable; the gang does not work meanwhile.

    start_s_of_job replaces start_s for the jobs that are in it. at_every_event is the rule of Muri's experiment: a
    start takes no time, but whenever anything happens on the cluster, every gang that works has worked so much less
    since the last time, never less than nothing. Whoever ends then has ended.
    """

    start_s: float = 0.0
    stop_s: float = 0.0
    save_s: float = 0.0
    start_s_of_job: Mapping[str, float] = field(default_factory=dict)
    at_every_event: bool = False

    def of_start_s(self, job: str) -> float:
        """What a start of this job costs, by whichever rule."""
        return self.start_s_of_job.get(job, self.start_s)
