"""Facts as rows of a timeline: the latest of the whole site, and those of one job. Plain values; no HTTP here.

What was compacted is not there any more. Those of a job are searched for in the journal, where nobody waits for it;
what was found is kept for the jobs that were looked at last, so that a page which is looked at again and again reads
only what is new.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, has
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.ledger import Ledger
from gantree.journal.contract import RecordedFact
from gantree.web.pages.timeline.sentences import job_of_fact, words

Json = dict[str, Any]
LOOKED_AT = (1, 4, 16)
"""So many times as many of the latest facts as are wanted are looked at for those that a reader may know of."""
JOBS_KEPT = 64


def latest(view: ReadView, most: int, caller: Caller) -> list[Json]:
    """The latest facts, newest first, without those on jobs that a caller may not see."""
    journal = view.journal
    known: list[RecordedFact] = []
    last, first = journal.last_fact(), journal.compacted_to()
    to = last
    for times in LOOKED_AT:
        after = max(first, last - times * most)
        page = islice(journal.facts(after), to - after)
        ledger = view.ledger
        known[:0] = [each for each in page if _is_told(ledger, caller, job_of_fact(each.fact))]
        to = after
        if len(known) >= most or to == first:
            break
    return [fact_row(each) for each in reversed(known[-most:])]


def _is_told(ledger: Ledger, caller: Caller, job: str | None) -> bool:
    """What is about no job is told to whoever may see all, and so is what is about one that is not known any more."""
    if caller.sees_all:
        return True
    spec = None if job is None else ledger.spec_of(job)
    return spec is not None and has(caller, Need.SEE, spec.user, spec.queue)


def fact_row(recorded: RecordedFact) -> Json:
    """One row."""
    fact = recorded.fact
    return {
        "seq": recorded.seq,
        "at": fact.at,
        "kind": type(fact).__name__,
        "job": job_of_fact(fact),
        "sentence": words(fact),
    }


@dataclass(slots=True)
class _Read:
    """What was read of one job, up to a seq; by one who looks at a time."""

    to: int = 0
    rows: list[Json] = field(default_factory=list)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class JobTimelines:
    """The facts of jobs, in order. search finds those of a job after a seq, and says up to which seq it looked."""

    def __init__(self, search: Callable[[str, int], Awaitable[tuple[list[Json], int]]]) -> None:
        self._search = search
        self._of_job: OrderedDict[str, _Read] = OrderedDict()

    async def of(self, job: str) -> list[Json]:
        """All facts about a job that are there."""
        read = self._of_job.setdefault(job, _Read())
        self._of_job.move_to_end(job)
        while len(self._of_job) > JOBS_KEPT:
            self._of_job.popitem(last=False)
        async with read.reading:
            rows, to = await self._search(job, read.to)
            read.rows += rows
            read.to = to
            return list(read.rows)


def facts_of_job(view: ReadView, job: str, after: int) -> tuple[list[Json], int]:
    """The rows of a job or array after a seq, and the seq up to which was looked. The first time it may take long."""
    journal, ledger = view.journal, view.ledger
    state = ledger.jobs.get(job) or ledger.arrays.get(job)
    last, first = journal.last_fact(), max(after, journal.compacted_to())
    if not after and state is not None:  # there is nothing about it from before it was handed in
        first = max(first, journal.facts_before(state.submitted_at))
    if last <= first:
        return [], after
    return [fact_row(each) for each in journal.facts_about(job, first, last)], last
