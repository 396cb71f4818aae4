"""What gangs did with the GPUs that they held, as counters of the GPUs told it."""

from dataclasses import dataclass

from gantree.model.values import quick


@quick
@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """GPU-seconds of one attempt in a span of time: useful, in which a GPU computed, and idle, in which it did not.

    Parts of GPUs count as those parts. What was not measured is in neither. ran says when it ran, of the time that is
    noted, where that is not the whole span of time: (seconds after its begin, seconds).
    """

    job: str
    attempt: int
    useful_gpu_s: float
    idle_gpu_s: float
    ran: tuple[tuple[float, float], ...] = ()

    @property
    def gpu_s(self) -> float:
        """All of it."""
        return self.useful_gpu_s + self.idle_gpu_s
