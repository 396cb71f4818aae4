"""What the output of jobs and old run directories may take of the disk that they share with the journal."""

import os
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class DiskAmount:
    """A part of a disk: a share of it, at most so many bytes (None: no bound), or, with a share of 1, bytes alone."""

    share: float = 1.0
    most_bytes: int | None = None

    def of(self, disk_bytes: int) -> int:
        """In bytes, on a disk of this size."""
        amount = int(self.share * disk_bytes)
        return amount if self.most_bytes is None else min(amount, self.most_bytes)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """log_cap_bytes: the largest log of a rank. keep_free: what logs leave free. keep_s, most: of ended attempts."""

    log_cap_bytes: int = GIB
    keep_free: DiskAmount = DiskAmount(0.05, 10 * GIB)
    keep_s: float = 90 * DAY_S
    most: DiskAmount = DiskAmount(0.5)

    def of_logs(self, state_dir: Path) -> dict[str, int]:
        """The limits of logs as a shim reads them. Raises OSError."""
        keep_free = self.keep_free.of(disk_bytes(state_dir))
        return {"cap_bytes": self.log_cap_bytes, "keep_free_bytes": keep_free}


DEFAULT_LIMITS = RunLimits()


def disk_bytes(folder: Path) -> int:
    """The size of the disk that a folder is on. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_blocks * disk.f_frsize
