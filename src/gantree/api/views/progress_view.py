"""Checks, reported progress and stragglers in the rows of jobs. Files are read, so not on the controller's thread."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict
from math import isfinite, isnan
from typing import Any, Protocol

from gantree.api.views.straggler_view import KnowsSteps, StragglerJudge
from gantree.executors.check_status import CheckStatus
from gantree.executors.progress import Progress
from gantree.model.phases import HOLDING

Json = dict[str, Any]


class KnowsObserved(KnowsSteps, Protocol):
    """A source of checks and own times of steps."""

    def check(self, job: str, attempt: int) -> CheckStatus | None:
        """Return how the check of an attempt stands, or None. Raises OSError."""
        ...


class KnowsProgress(KnowsObserved, Protocol):
    """A source of progress: an executor, or another reader of its files."""

    def progress(self, job: str, attempt: int) -> Progress | None:
        """Return the reported progress of an attempt, or None."""
        ...


async def add_progress(
    rows: Iterable[Json], cluster: KnowsProgress, judge: StragglerJudge, *, ended: bool = False
) -> None:
    """Fill `check`, `progress` and `stragglers` of the jobs that hold a place; where ended, of those too that did.

    On another thread, and on none where no row is of such a job: a list of who waits has no file to read.
    """
    wanted = [row for row in rows if row["attempt"] and (ended or row["phase"] in HOLDING)]
    if wanted:
        await asyncio.to_thread(_fill, wanted, cluster, judge)


async def add_observed(explained: Json, cluster: KnowsObserved, judge: StragglerJudge) -> None:
    """Fill `check` and `stragglers` of the answer to why about a job that holds a place, on another thread."""
    if explained.get("attempt") and explained["phase"] in HOLDING:
        of = explained["job"], explained["attempt"]
        explained["check"] = await asyncio.to_thread(check_row, cluster, *of)
        explained["stragglers"] = await asyncio.to_thread(judge.rows, cluster, *of)


def check_row(cluster: KnowsObserved, job: str, attempt: int) -> Json | None:
    """How the check of an attempt stands, without its figures; None without one, and for a damaged file."""
    try:
        found = cluster.check(job, attempt)
    except OSError:
        return None
    if found is None:
        return None
    row = {name: getattr(found, name) for name in ("state", "began_at", "seconds", "done", "total")}
    warnings = [] if found.report is None else found.report["warnings"]
    return {**row, "sentence": found.sentence(time.time()), "warnings": warnings}


def _fill(rows: Iterable[Json], cluster: KnowsProgress, judge: StragglerJudge) -> None:
    for row in rows:
        if row["phase"] in HOLDING:
            row["stragglers"] = judge.rows(cluster, row["job"], row["attempt"])
        row["check"] = check_row(cluster, row["job"], row["attempt"])
        found = cluster.progress(row["job"], row["attempt"])
        row["progress"] = None if found is None else plain(asdict(found))


def curve_points(reports: Iterable[Progress]) -> list[Json]:
    """Reports over time as rows."""
    return [plain(asdict(each)) for each in reports]


def plain(told: Json) -> Json:
    """Numbers that JSON has no word for become texts: a loss that is no number is worth seeing."""
    return {name: _word(value) for name, value in told.items()}


def _word(value: float | None) -> float | str | None:
    if value is None or isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
