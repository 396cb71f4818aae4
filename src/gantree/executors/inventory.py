"""The inventory of a cluster: what runs where now. The difference from the ledger becomes events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Status = Literal["running", "partial", "ended", "absent"]
"""running: every member is starting or runs. partial: some are gone or being stopped, others are left.
ended: nothing is left of it. absent: this cluster knows nothing of it."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The status of every attempt that the cluster knows, by (job, attempt)."""

    attempts: Mapping[tuple[str, int], Status]

    def status(self, job: str, attempt: int) -> Status:
        """The status of an attempt, "absent" if unknown."""
        return self.attempts.get((job, attempt), "absent")
