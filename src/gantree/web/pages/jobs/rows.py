"""Rows of the page of jobs: one of three lists, filtered, a hundred at a time. Plain values; no HTTP here."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Literal

from gantree.api.access.access import Caller
from gantree.api.access.permissions import job_visibility, redacted_for, sees_queue
from gantree.api.views.job_list import Filter
from gantree.api.views.job_view import array_row, job_row, rejected_row
from gantree.control.requests.job_ids import job_of
from gantree.control.requests.read_view import ReadView
from gantree.core.explain.explain import why_array
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import Phase
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
    shown = found[first : first + PER_PAGE]
    states = [ledger.jobs[job] for job in shown if job in ledger.jobs]
    why = _REASONS.of(ledger, states, view.now)
    rows = [
        {**job_row(ledger, ledger.jobs[job]), "why": why[job]}
        if job in ledger.jobs
        else _array_row(ledger, ledger.arrays[job], view.now)
        for job in shown
    ]
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
            "waiting": ledger.waiting_jobs,
            "running": len(ledger.holding),
            "ended": len(ledger.ended),
        },
    }


def _array_row(ledger: Ledger, array: ArrayState, now: float) -> Json:
    """The row of the elements of an array that wait and do not differ."""
    row = {**array_row(ledger, array), "phase": Phase.PENDING.value}
    return {**row, "why": why_array(ledger, array.array, now).sentence}


def _found(ledger: Ledger, query: JobQuery, caller: Caller) -> Sequence[str]:
    """All jobs of the list that match the query and that the caller may see."""
    listed, sees = _listed(ledger, query.which), job_visibility(caller)
    sought = query.find.lower()
    if sees is None and not (sought or query.queue or query.user):
        return listed
    alike = Filter(queue=query.queue, user=query.user)
    states = ((job, _state_of(ledger, job)) for job in listed)
    return [
        job
        for job, state in states
        if (not sought or sought in job.lower() or sought in state.spec.name.lower())
        and alike.admits(state)
        and (sees is None or sees(state))
    ]


def _state_of(ledger: Ledger, job: str) -> JobState:
    """The state of a job, or what all elements of an array have in common that are not split."""
    state = ledger.jobs.get(job)
    return ledger.arrays[job].unsplit_element(0, 0) if state is None else state


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
    return _ARRIVALS.of(ledger)


class Arrivals:
    """Who waits, in order of arrival; put in order once for all who look, until something changes.

    Elements of an array that wait and do not differ are one, by the id of their array.
    """

    def __init__(self) -> None:
        self._of: tuple[Ledger, int] | None = None
        self._jobs: tuple[str, ...] = ()

    def of(self, ledger: Ledger) -> Sequence[str]:
        """The jobs of all queues."""
        if self._of is None or self._of[0] is not ledger or self._of[1] != ledger.applied:
            self._jobs = tuple(job for _, job in sorted(_waiting(ledger)))
            self._of = ledger, ledger.applied
        return self._jobs


def _waiting(ledger: Ledger) -> Iterator[tuple[int, str]]:
    """(place in order of arrival, job or array) of all that waits."""
    for position in chain.from_iterable(ledger.waiting[eq_class] for eq_class in ledger.waiting):
        state = ledger.jobs[position.job]
        if not ledger.is_alike(state):
            yield position.seq, position.job
    for array in ledger.arrays.values():
        if not array.cut and ledger.alike_spans(array):
            yield array.seq, array.array


_ARRIVALS = Arrivals()


def _rejected(ledger: Ledger, query: JobQuery) -> list[Json]:
    """Rows of jobs that were taken and could not be queued, the newest first: among those that ended."""
    if query.which not in ("ended", "all") or query.queue or query.user:
        return []
    sought = query.find.lower()
    found = (item for item in reversed(ledger.rejected.items()) if sought in item[0].lower())
    return [rejected_row(job, reason) for job, reason in islice(found, REJECTED_SHOWN)]
