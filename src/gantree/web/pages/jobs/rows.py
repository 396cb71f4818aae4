"""Rows of the page of jobs: one of three lists, filtered, a hundred at a time. Plain values; no HTTP here."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Literal

from gantree.api.access.access import Caller
from gantree.api.access.permissions import job_visibility, redacted_for, sees_queue
from gantree.api.views.job_list import Filter
from gantree.api.views.job_view import job_row, rejected_row
from gantree.control.requests.job_ids import job_of
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.ledger import Ledger
from gantree.policy.waiting_jobs import WaitingJobs
from gantree.web.pages.jobs.pending_reasons import Reasons

Json = dict[str, Any]
Which = Literal["waiting", "running", "ended", "all"]
PER_PAGE = 100
REJECTED_SHOWN = 20
_REASONS = Reasons()
"""What was answered last in this process, be it the daemon or its reader."""


@dataclass(frozen=True, slots=True)
class JobQuery:
    """One page of one list. find is a part of a name or an id, in any case; page counts from 1."""

    which: Which = "waiting"
    queue: str | None = None
    user: str | None = None
    find: str = ""
    page: int = 1


def job_rows(view: ReadView, query: JobQuery, caller: Caller) -> Json:
    """Rows of the page with why each job is where it is, how many there are in all, and the sizes of the lists."""
    ledger = view.ledger
    found = _found(ledger, query, caller)
    first = (query.page - 1) * PER_PAGE
    shown = [ledger.jobs[job] for job in found[first : first + PER_PAGE]]
    why = _REASONS.of(ledger, shown, view.now)
    rows = [{**job_row(ledger, state), "why": why[state.job]} for state in shown]
    return {
        "rows": redacted_for(caller, ledger, rows),
        "rejected": _rejected(ledger, query) if first == 0 and caller.sees_all else [],
        "found": len(found),
        "named": _named(ledger, query, found),
        "first": first + 1 if shown else 0,
        "pages": max(1, -(-len(found) // PER_PAGE)),
        "queues": [
            name
            for name in dict.fromkeys(ledger.accounts.tree.queue)
            if name and sees_queue(caller, name)
        ],
        "sizes": {
            "waiting": len(ledger.waiting),
            "running": len(ledger.holding),
            "ended": len(ledger.ended),
        },
    }


def _found(ledger: Ledger, query: JobQuery, caller: Caller) -> Sequence[str]:
    """All jobs of the list that match the query and that the caller may see."""
    listed, sees = _listed(ledger, query.which), job_visibility(caller)
    sought = query.find.lower()
    if sees is None and not (sought or query.queue or query.user):
        return listed
    alike = Filter(queue=query.queue, user=query.user)
    states = map(ledger.jobs.__getitem__, listed)
    return [
        state.job
        for state in states
        if (not sought or sought in state.job.lower() or sought in state.spec.name.lower())
        and alike.admits(state)
        and (sees is None or sees(state))
    ]


def _named(ledger: Ledger, query: JobQuery, found: Collection[str]) -> str | None:
    """The job that a search means: the one with this id, else the newest of this name."""
    named = job_of(ledger, query.find) if query.find else None
    return named if named in found else None


def _listed(ledger: Ledger, which: Which) -> Sequence[str]:
    """Those who wait in order of arrival, those who hold a place likewise; of the rest the latest first."""
    if which == "running":
        return [state.job for state in sorted(ledger.holding.values(), key=attrgetter("seq"))]
    if which == "ended":
        return [state.job for state in reversed(ledger.ended)]
    if which == "all":
        return list(reversed(ledger.jobs))
    return _ARRIVALS.of(ledger.waiting)


class Arrivals:
    """Who waits, in order of arrival; put in order once for all who look, until somebody comes or goes."""

    def __init__(self) -> None:
        self._of: tuple[WaitingJobs, int] | None = None
        self._jobs: tuple[str, ...] = ()

    def of(self, waiting: WaitingJobs) -> Sequence[str]:
        """The jobs of all lines."""
        if self._of is None or self._of[0] is not waiting or self._of[1] != waiting.changes:
            standing = chain.from_iterable(waiting[eq_class] for eq_class in waiting)
            self._jobs = tuple(each.job for each in sorted(standing, key=attrgetter("seq")))
            self._of = waiting, waiting.changes
        return self._jobs


_ARRIVALS = Arrivals()


def _rejected(ledger: Ledger, query: JobQuery) -> list[Json]:
    """Rows of jobs that were taken and could not be queued, the newest first: among those that ended."""
    if query.which not in ("ended", "all") or query.queue or query.user:
        return []
    sought = query.find.lower()
    found = (item for item in reversed(ledger.rejected.items()) if sought in item[0].lower())
    return [rejected_row(job, reason) for job, reason in islice(found, REJECTED_SHOWN)]
