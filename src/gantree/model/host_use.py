"""What a gang uses of its hosts' CPUs and memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostUse:
    """All members of one attempt: seconds of CPU in ran_s seconds of running, and the most memory in GiB."""

    ran_s: float
    cpu_s: float
    memory_GiB: float

    @property
    def cpus(self) -> float:
        """CPUs in the mean."""
        return self.cpu_s / self.ran_s if self.ran_s > 0 else 0.0
