"""The check of a gang's links before its start, as it is known while it lasts and afterwards: an observation."""

from dataclasses import dataclass
from typing import Any

CHECKING = "checking"


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """state is CHECKING, or that of the report ("passed", "short", "unfinished", "skipped"). Times are since 1970.

    done of total measurements are made; total is 0 before the first. report is the whole report, None while it lasts.
    """

    state: str
    began_at: float
    seconds: float
    done: int
    total: int
    report: dict[str, Any] | None = None

    def sentence(self, now: float) -> str:
        """Return what is said of it in a line."""
        if self.report is not None:
            sentence: str = self.report["sentence"]
            return "; ".join((sentence, *self.report["warnings"]))
        passed_s = min(max(0.0, now - self.began_at), self.seconds)
        part = f", {self.done} of {self.total} measured" if self.total else ""
        return f"checking its links, {passed_s:.0f} s of {self.seconds:g} s{part}"
