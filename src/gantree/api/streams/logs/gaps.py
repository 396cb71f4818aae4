"""The part of a rank's log that was dropped because the log was too large (`executors.local.shim.log_cap`)."""

from dataclasses import dataclass
from pathlib import Path

from gantree.executors.local.shim.shim import read_json


@dataclass(frozen=True, slots=True)
class Gap:
    """The bytes from start on and before end are no output."""

    start: int
    end: int

    def overlaps(self, offset: int, length: int) -> bool:
        """Whether some of so many bytes from an offset on are in it."""
        return max(offset, self.start) < min(offset + length, self.end)


def gap_of(log: Path) -> Gap | None:
    """The gap of a log file, None where it is whole. Ask after reading: a gap is written down before bytes go."""
    try:
        found = read_json(f"{log}.gap")
        return None if found is None else Gap(int(found["start"]), int(found["end"]))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def dropped(count: int) -> bytes:
    """The line that stands in the output for what was dropped."""
    return f"gantree: {count:,} bytes of output were dropped here\n".encode()
