"""Ended jobs as plain JSON values: searches, and a job that is only in the history. No HTTP here.

Whoever asks is told of the jobs that he may see; the database looks for no others.
"""

from dataclasses import asdict, replace
from typing import Any

from gantree.accounting.ended_jobs import EVERYTHING, EndedJob, JobSearch, Scope
from gantree.api.access.access import Caller
from gantree.api.access.permissions import HiddenJob, JobLookup, Need, has, job_for
from gantree.api.access.visibility import detail_visible_to
from gantree.api.views.job_view import plain, rejected_row
from gantree.control.requests.read_view import ReadView
from gantree.control.requests.submissions import submitted_event_id
from gantree.model.access import Power
from gantree.model.errors import Conflict, NotFound
from gantree.model.events import JobSubmitted

Json = dict[str, Any]


def scopes_of(caller: Caller) -> tuple[Scope, ...]:
    """The jobs that a caller may see, as queues and users; as `permissions.has` has it for one job."""
    if caller.sees_all:
        return EVERYTHING
    scopes = dict[Scope, None]()
    for grant in caller.grants:
        if Power.SEE in grant.powers:
            scopes[Scope(grant.queue)] = None
        elif Power.SEE_OWN in grant.powers:
            scopes[Scope(grant.queue, caller.name)] = None
    return tuple(scopes)


def ended_jobs(
    view: ReadView, caller: Caller, search: JobSearch, before: int | None, limit: int
) -> Json:
    """A page of ended jobs, the last that ended first."""
    allowed = replace(search, scopes=scopes_of(caller))
    found = view.journal.history.ended_jobs(allowed, before, limit + 1)
    more = len(found) > limit
    return {
        "jobs": [asdict(each.ended) for each in found[:limit]],
        "next": found[limit - 1].seq if more else None,
    }


def ended_job(view: ReadView, caller: Caller, word: str) -> Json:
    """One ended job, by id or the last of a name. Raises NotFound, and Conflict for one that has not ended."""
    found = ended_job_of(view, caller, word)
    if found is None:
        job = job_for(view, caller, word, Need.SEE)
        raise Conflict(f"{job} has not ended")
    return asdict(found)


def ended_job_of(lookup: JobLookup, caller: Caller, word: str) -> EndedJob | None:
    """The ended job of an id, else the last of a name; None where there is none that the caller may see."""
    history = lookup.journal.history
    found = history.ended_job(word)
    if found is not None:
        ended = found.ended
        return ended if has(caller, Need.SEE, ended.user, ended.queue) else None
    named = history.ended_jobs(JobSearch(exact_name=word, scopes=scopes_of(caller)), None, 1)
    return named[0].ended if named else None


def instead_of(error: NotFound, lookup: JobLookup, caller: Caller, word: str) -> EndedJob:
    """The ended job that a word means which the ledger does not know. Raises the error where there is none."""
    ended = None if isinstance(error, HiddenJob) else ended_job_of(lookup, caller, word)
    if ended is None:
        raise error
    return ended


def detail_of(lookup: JobLookup, caller: Caller, ended: EndedJob) -> Json:
    """All that is known of a forgotten job, with the fields of one that is not; its specification while it is there."""
    event = lookup.journal.event(submitted_event_id(ended.job))
    spec = plain(event.spec) if isinstance(event, JobSubmitted) else None
    if spec is not None:
        spec |= {"user": ended.user, "queue": ended.queue}
    known = asdict(ended)
    detail = {
        **rejected_row(ended.job, ""),
        **{name: value for name, value in known.items() if name != "outcome"},
        "phase": ended.outcome,
        "attempt": ended.attempts,
        "spec": spec,
        "placement": None,
    }
    return detail_visible_to(caller, lookup.ledger, detail)


def explanation_of(ended: EndedJob) -> Json:
    """The answer to why a forgotten job is where it is, in the words for one that is not."""
    code = "" if ended.exit_code is None else f" (exit code {ended.exit_code})"
    return {
        "job": ended.job,
        "phase": ended.outcome,
        "attempt": ended.attempts,
        "sentence": f"Ended: {ended.outcome}{code}: {ended.reason}.",
        "refused": None,
        "ahead": [],
        "ahead_count": 0,
        "start": None,
        "in_the_way": [],
        "check": None,
        "stragglers": [],
    }
