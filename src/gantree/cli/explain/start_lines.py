"""Reservations and estimated starts as lines for people; a promise never reads like an estimate."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gantree.cli.output.printing import span

MOST_NAMED = 5
LEAVING = ("saving", "stopping")
"""Phases in which a gang leaves, so that its time limit says nothing more."""


def start_line(start: dict[str, Any], now: float) -> str:
    """One line: when, on what, and how sure that is."""
    at = f"{_moment(start['starts_at'], now)}{_on(start['domain'])}"
    if start["promised"] and start["reserved"]:
        line = f"starts {at} at the latest: promised"
    elif start["reserved"]:
        line = f"probably starts {at}: an estimate, with a reservation"
    else:
        line = f"might start {at}: a guess, without a reservation"
    after = f"; after the end of {names(start['waits_for'])}" if start["waits_for"] else ""
    return line + after + _slips(start["slips"])


def _moment(at: float, now: float) -> str:
    clock = datetime.fromtimestamp(at).astimezone()
    day = "" if at - now < 86_400 else f"{clock:%Y-%m-%d} "
    return f"in {span(at - now)} ({day}{clock:%H:%M:%S})"


def _on(domain: str) -> str:
    return f" on {domain}" if domain else ""


def _slips(slips: int) -> str:
    if not slips:
        return ""
    return f"; delayed {slips} time{'s' * (slips != 1)} so far"


def names(jobs: Sequence[str]) -> str:
    """The first few names, and how many more."""
    more = len(jobs) - MOST_NAMED
    return ", ".join(jobs[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def end_line(end: dict[str, Any], now: float) -> str:
    """When a job that is waited for ends, and whether anything makes it."""
    if end["ends_at"] is None:
        return f"{end['job']}: its end is unknown"
    at = _moment(end["ends_at"], now)
    if end["enforced"]:
        because = "as it is being stopped" if end["phase"] in LEAVING else "by its time limit"
        return f"{end['job']}: ends {at} at the latest, {because}"
    return f"{end['job']}: probably ends {at}"
