"""What gangs did with the GPUs that they held, as counters of the GPUs told it.

A thousand gangs are told of every five minutes, so these are tuples: the journal has lists, without the names of their
fields, which would be more than half of it. Mappings, as older journals have them, are read, too.
"""

from typing import NamedTuple


class Drawn(NamedTuple):
    """What counters told beside whether GPUs computed.

    In powered GPU-seconds they told what GPUs drew, energy_kWh. nvlink_GB and nic_GB are what was sent.
    """

    powered_gpu_s: float = 0.0
    energy_kWh: float = 0.0
    nvlink_GB: float = 0.0
    nic_GB: float = 0.0


NOTHING_DRAWN = Drawn()


class MeasuredUse(NamedTuple):
    """GPU-seconds of one attempt in a span of time: useful, in which a GPU computed, and idle, in which it did not.

    Parts of GPUs count as those parts. What was not measured is in neither. ran says when it ran, of the time that is
    noted, where that is not the whole span of time: (seconds after its begin, seconds).
    """

    job: str
    attempt: int
    useful_gpu_s: float
    idle_gpu_s: float
    ran: tuple[tuple[float, float], ...] = ()
    drawn: Drawn = NOTHING_DRAWN

    @property
    def gpu_s(self) -> float:
        """All of it."""
        return self.useful_gpu_s + self.idle_gpu_s
