"""What is known of a check from its files. Nothing is started here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gantree.executors.check_status import CHECKING, CheckStatus
from gantree.executors.local.run_directory import RunDirectory
from gantree.executors.local.shim.shim import read_json
from gantree.model.events import Event

MarkFaults = Callable[[str, int, Sequence[Mapping[str, Any]]], Sequence[Event]]
"""The events by which nodes and links that a check of (job, attempt) found at fault are marked."""


def no_marks(job: str, attempt: int, faults: Sequence[Mapping[str, Any]]) -> Sequence[Event]:
    """Nobody marks anything."""
    return ()


def report_in(run: RunDirectory) -> dict[str, Any] | None:
    """The report of a check; None while it lasts, and without one. Raises OSError for a damaged file."""
    report: dict[str, Any] | None = read_json(str(run.check / "report.json"))
    return report


def check_in(run: RunDirectory) -> CheckStatus | None:
    """How the check of an attempt stands; None for an attempt without one. Raises OSError."""
    plan = read_json(str(run.check / "plan.json"))
    if plan is None:
        return None
    report = report_in(run)
    progress = read_json(str(run.check / "progress.json")) or {"done": 0, "total": 0}
    return CheckStatus(
        CHECKING if report is None else report["state"],
        plan["made_at"],
        plan["seconds"],
        progress["done"],
        progress["total"],
        report,
    )
