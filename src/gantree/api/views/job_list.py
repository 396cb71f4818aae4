"""The job list: filters, and pages that stay the same while jobs are submitted. No HTTP here.

Jobs are listed in order of arrival, then those that were rejected; what comes later comes last in either, so a place
in the list, once passed, is passed for good. An element of an array has the place that its array has for it, whether
it is split or not. In a list by arrays, the elements that wait and do not differ are one row, at the first of them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from gantree.api.views.job_view import array_row, job_row, rejected_row
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.errors import BadFields, Problem
from gantree.model.phases import HOLDING, Phase

Json = dict[str, Any]
Sees = Callable[[JobState], bool]


@dataclass(frozen=True, slots=True)
class Filter:
    """What a job must be to be listed; empty or None: anything. queue is one with all that are below it.

    by_array: elements that wait and do not differ are one row.
    """

    phases: frozenset[str] = frozenset()
    queue: str | None = None
    user: str | None = None
    name: str | None = None
    since: float | None = None
    by_array: bool = False

    def admits(self, state: JobState) -> bool:
        """Whether a job is listed."""
        return self._admits_all_but_name(state) and (
            self.name is None or state.spec.name == self.name
        )

    def admits_any_of(self, array: ArrayState) -> bool:
        """Whether any unsplit element of an array is listed."""
        name = self.name
        named = name is None or name == array.spec.name or name.startswith(f"{array.spec.name}-")
        return named and self._admits_all_but_name(array.unsplit_element(array.size - 1, 0))

    def _admits_all_but_name(self, state: JobState) -> bool:
        spec = state.spec
        return (
            (not self.phases or state.phase.value in self.phases)
            and (self.queue is None or f"{spec.queue}/".startswith(f"{self.queue}/"))
            and (self.user is None or spec.user == self.user)
            and (self.since is None or state.submitted_at >= self.since)
        )

    @property
    def admits_rejected(self) -> bool:
        """Whether those are listed of which only the reason is known."""
        known = (self.queue, self.user, self.since) == (None, None, None)
        return known and (not self.phases or Phase.FAILED.value in self.phases)


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """A place in the list: behind the job with this place in order of arrival, and behind the row of its array.

    Rejected jobs are counted by themselves, and come last.
    """

    is_rejected: bool = False
    number: int = -1
    behind_array: bool = False

    def __str__(self) -> str:
        return f"{'r' * self.is_rejected}{self.number}{'a' * self.behind_array}"


def page_of(
    ledger: Ledger,
    wanted: Filter,
    after: str | None,
    limit: int | None,
    sees: Sees | None = None,
) -> Json:
    """The rows after a place in the list, at most limit of them, and the place of the last where there are more.

    sees says which jobs whoever asks may see; None: all, and those that were rejected.
    """
    rows = _rows(ledger, wanted, _place(after), sees or _all)
    if wanted.admits_rejected and sees is None:
        rows = chain(rows, _rejected(ledger, wanted, _place(after)))
    if limit is None:
        return {"jobs": [row for _, row in rows], "next": None}
    page = list(islice(rows, limit + 1))
    more = len(page) > limit
    return {
        "jobs": [row for _, row in page[:limit]],
        "next": str(page[limit - 1][0]) if more else None,
    }


def _all(state: JobState) -> bool:
    return True


def _rows(
    ledger: Ledger, wanted: Filter, after: _Place, sees: Sees
) -> Iterator[tuple[_Place, Json]]:
    """The rows of jobs and arrays, each with its place."""
    if after.is_rejected:
        return
    if wanted.phases and wanted.phases <= HOLDING:
        for state in sorted(ledger.holding.values(), key=lambda each: each.seq):
            if state.seq > after.number and wanted.admits(state) and sees(state):
                yield _Place(number=state.seq), job_row(ledger, state)
        return
    first = bisect_left(ledger.arrivals, (after.number + 1,))
    for number in range(
        max(0, first - 1), len(ledger.arrivals)
    ):  # an array may reach beyond the place
        seq, name = ledger.arrivals[number]
        array = ledger.arrays.get(name)
        if array is not None:
            yield from _of_array(ledger, wanted, array, after, sees)
        elif seq > after.number and wanted.admits(ledger.jobs[name]) and sees(ledger.jobs[name]):
            yield _Place(number=seq), job_row(ledger, ledger.jobs[name])


def _of_array(
    ledger: Ledger, wanted: Filter, array: ArrayState, after: _Place, sees: Sees
) -> Iterator[tuple[_Place, Json]]:
    any_alike = bool(ledger.alike_spans(array))
    any_alike &= wanted.admits_any_of(array) and sees(array.unsplit_element(array.size - 1, 0))
    for state in _elements(ledger, array, after, with_unsplit=any_alike and not wanted.by_array):
        is_folded = wanted.by_array and ledger.is_alike(state)
        if wanted.admits(state) and sees(state) and not is_folded:
            yield _Place(number=state.seq), job_row(ledger, state)
    place = _Place(number=array.seq + array.size - 1, behind_array=True)
    if wanted.by_array and any_alike and place > after:
        phase = Phase.PENDING if array.cut_as is None else array.cut_as
        yield place, {**array_row(ledger, array), "phase": phase.value}


def _elements(
    ledger: Ledger, array: ArrayState, after: _Place, *, with_unsplit: bool
) -> Iterator[JobState]:
    """The elements behind a place that are known, in order of arrival."""
    first = max(0, after.number + 1 - array.seq)
    offsets: Iterable[int] = range(first, array.size)
    if not with_unsplit:
        early = (offset for offset in sorted(array.early) if offset >= first)
        offsets = chain(range(first, array.next_offset), early)
    for offset in offsets:
        state = ledger.find(array.job(offset))
        if state is not None:
            yield state


def _rejected(ledger: Ledger, wanted: Filter, after: _Place) -> Iterator[tuple[_Place, Json]]:
    for number, (job, reason) in enumerate(ledger.rejected.items(), ledger.forgotten_rejected + 1):
        place = _Place(is_rejected=True, number=number)
        if place > after and wanted.name in (None, job):
            yield place, rejected_row(job, reason)


def _place(after: str | None) -> _Place:
    """The place of an `after`; before all where None. Raises BadFields."""
    if after is None:
        return _Place()
    number = after.removeprefix("r").removesuffix("a")
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        allowed = "what `next` of a page says"
        raise BadFields([Problem("request", None, "after", repr(after)[:100], allowed)])
    return _Place(after.startswith("r"), int(number), after.endswith("a"))
