"""The job list: filters, and pages that stay the same while jobs are submitted. No HTTP here.

Jobs are listed in order of arrival, then those that were rejected; what comes later comes last in either, so a place
in the list, once passed, is passed for good.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gantree.api.views.job_view import job_row, rejected_row
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.errors import BadFields, Problem
from gantree.model.phases import HOLDING, Phase

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """What a job must be to be listed; empty or None: anything. queue is one with all that are below it."""

    phases: frozenset[str] = frozenset()
    queue: str | None = None
    user: str | None = None
    name: str | None = None
    since: float | None = None

    def admits(self, state: JobState) -> bool:
        """Whether a job is listed."""
        spec = state.spec
        return (
            (not self.phases or state.phase.value in self.phases)
            and (self.queue is None or f"{spec.queue}/".startswith(f"{self.queue}/"))
            and (self.user is None or spec.user == self.user)
            and (self.name is None or spec.name == self.name)
            and (self.since is None or state.submitted_at >= self.since)
        )

    @property
    def admits_rejected(self) -> bool:
        """Whether those are listed of which only the reason is known."""
        known = (self.queue, self.user, self.since) == (None, None, None)
        return known and (not self.phases or Phase.FAILED.value in self.phases)


def page_of(
    ledger: Ledger,
    wanted: Filter,
    after: str | None,
    limit: int | None,
    sees: Callable[[JobState], bool] | None = None,
) -> Json:
    """The rows after a place in the list, at most limit of them, and the place of the last where there are more.

    sees says which jobs whoever asks may see; None: all, and those that were rejected.
    """
    rows = _rows(ledger, wanted, _place(after), sees)
    if limit is None:
        return {"jobs": [row for _, row in rows], "next": None}
    page = list(islice(rows, limit + 1))
    more = len(page) > limit
    return {
        "jobs": [row for _, row in page[:limit]],
        "next": page[limit - 1][0] if more else None,
    }


def _rows(
    ledger: Ledger,
    wanted: Filter,
    after: tuple[bool, int],
    sees: Callable[[JobState], bool] | None,
) -> Iterator[tuple[str, Json]]:
    """(place, row) of each."""
    is_rejected, number = after
    if not is_rejected:
        for state in _candidates(ledger, wanted):
            if state.seq > number and wanted.admits(state) and (sees is None or sees(state)):
                yield str(state.seq), job_row(ledger, state)
        number = 0
    if wanted.admits_rejected and sees is None:
        for place, (job, reason) in enumerate(
            ledger.rejected.items(), ledger.forgotten_rejected + 1
        ):
            if place > number and wanted.name in (None, job):
                yield f"r{place}", rejected_row(job, reason)


def _candidates(ledger: Ledger, wanted: Filter) -> Iterable[JobState]:
    """Jobs in order of arrival, not all of them where only such are wanted as hold a place."""
    if wanted.phases and wanted.phases <= HOLDING:
        return sorted(ledger.holding.values(), key=lambda state: state.seq)
    return ledger.jobs.values()


def _place(after: str | None) -> tuple[bool, int]:
    """Whether a place is among the rejected, and its number; before all where None. Raises BadFields."""
    if after is None:
        return False, -1
    number = after.removeprefix("r")
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        allowed = "what `next` of a page says"
        raise BadFields([Problem("request", None, "after", repr(after)[:100], allowed)])
    return after.startswith("r"), int(number)
