"""The questions that routes and pages read: functions of a Reading that give plain JSON values. No HTTP here.

Whoever asks is told what he may see (`permissions`), and nothing else.

Each is a function of this module, so that it can be sent to the reader by its name.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from gantree.api.access import permissions
from gantree.api.access.access import Caller
from gantree.api.access.permissions import JobLookup, Need, job_for, job_visibility, redacted_for
from gantree.api.access.visibility import (
    cluster_visible_to,
    detail_visible_to,
    facts_visible_to,
    queues_visible_to,
)
from gantree.api.views import (
    domain_view,
    job_list,
    job_view,
    link_view,
    node_view,
    policy_view,
    queue_view,
    start_view,
)
from gantree.api.views.accounting import history_view
from gantree.control.requests.job_ids import live_job_of
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.policy_versions import tried, version_of
from gantree.control.requests.read_view import ReadView
from gantree.core.alternatives import Change, alternatives, forecast
from gantree.core.cycle.moves import Defragmentation
from gantree.core.explain.explain import why
from gantree.core.ledger.ledger import Ledger
from gantree.model.errors import Conflict, NotFound
from gantree.model.events import JobSubmitted
from gantree.model.phases import ENDED, HOLDING, Phase
from gantree.placement.request.sizes import sizes_of

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogState:
    """What a reader needs to know of a job: its attempts so far, and whether the last of them is over.

    is_last: no later state will be told here.
    """

    attempt: int
    attempt_over: bool
    job_over: bool
    is_last: bool = False


def jobs(
    view: ReadView,
    caller: Caller,
    wanted: job_list.Filter,
    after: str | None,
    limit: int | None,
) -> Json:
    """A page of jobs."""
    sees = job_visibility(caller)
    found = job_list.page_of(view.ledger, wanted, after, limit, sees)
    return {**found, "jobs": redacted_for(caller, view.ledger, found["jobs"])}


def job_id(view: ReadView, caller: Caller, word: str, need: Need) -> str:
    """The id of the job that a caller means. Raises NotFound and Forbidden."""
    return job_for(view, caller, word, need)


def meant_job(view: ReadView, caller: Caller, word: str) -> Json:
    """The job that a person means by a word: a live one before one that has ended. Raises NotFound and Conflict.

    instead_of: the word, where it is the id of another job, which has ended.
    """
    ledger = view.ledger
    sees = partial(permissions.sees, caller)
    job = live_job_of(ledger, word, sees) or job_for(view, caller, word, Need.SEE)
    state = ledger.find(word)
    is_another = job != word and state is not None and sees(state)
    return {"job": job, "instead_of": word if is_another else None}


def job(
    view: ReadView, caller: Caller, word: str, wanted: AbstractSet[Phase] | None
) -> Json | None:
    """A job if it is in a wanted phase, None: any; many wait for one at once, and its detail takes long to tell."""
    try:
        name = job_for(view, caller, word, Need.SEE)
    except NotFound:
        return detail(view, caller, word)  # perhaps it is only in the history
    if wanted is not None and _phase_of(view.ledger, name) not in wanted:
        return None
    return detail(view, caller, word)


def _phase_of(ledger: Ledger, name: str) -> Phase:
    """The phase of a job or an array; one that was rejected has failed."""
    array = ledger.arrays.get(name)
    if array is not None:
        return array.phase(array.counts(ledger.jobs))
    state = ledger.find(name)
    return Phase.FAILED if state is None else state.phase


def detail(lookup: JobLookup, caller: Caller, word: str) -> Json:
    """All of a job; of one that is only in the history, what that has. Raises NotFound."""
    try:
        job = job_for(lookup, caller, word, Need.SEE)
    except NotFound as error:
        ended = history_view.instead_of(error, lookup, caller, word)
        return history_view.detail_of(lookup, caller, ended)
    return detail_visible_to(caller, lookup.ledger, job_view.job_detail(lookup.ledger, job))


def facts(view: ReadView, caller: Caller, after: int, limit: int) -> tuple[int | None, list[Json]]:
    """Return (seq of the last of the next facts, or None; those facts that the caller may read)."""
    page = list(islice(view.journal.facts(after), limit))
    redacted = facts_visible_to(caller, view.ledger, [job_view.fact(recorded) for recorded in page])
    return page[-1].seq if page else None, redacted


def compacted_to(view: ReadView) -> int:
    """The seq up to which facts are gone."""
    return view.journal.compacted_to()


def log_of(view: ReadView, caller: Caller, word: str) -> tuple[str, int, int]:
    """The job's id, the most processes that an attempt of it may have or have had, and how many attempts there were."""
    job = job_for(view, caller, word, Need.READ)
    state = view.ledger.find(job)
    if state is None and job in view.ledger.arrays:
        raise Conflict(
            f"{job} is an array: name one of its jobs, such as {view.ledger.arrays[job].job(0)}"
        )
    if state is None:
        raise NotFound(f"{job} was rejected, so it never wrote anything")
    return job, state.at_size(max(sizes_of(state.spec))).processes, state.attempt


def log_state(view: ReadView, job: str) -> LogState:
    """Return the state of a job whose output is read."""
    state = view.ledger.find(job)
    if state is None:  # it ended so long ago that it is forgotten
        return LogState(0, attempt_over=True, job_over=True)
    return LogState(state.attempt, state.phase not in HOLDING, state.phase in ENDED)


def queues(view: ReadView, caller: Caller) -> list[Json]:
    """The queue tree."""
    return queues_visible_to(caller, queue_view.queues_json(view.ledger, view.now))


def cluster(view: ReadView, caller: Caller) -> Json:
    """Return the current site, and the holder of each GPU."""
    return cluster_visible_to(caller, view.ledger, job_view.cluster(view.ledger))


def domains(view: ReadView, inside: str | None, limit: int) -> Json:
    """How full the domains in a domain are; it names no jobs. Raises NotFound."""
    return domain_view.domains_json(view.ledger, inside, limit)


def nodes(view: ReadView, caller: Caller) -> list[Json]:
    """All nodes."""
    rows: list[Json] = redacted_for(caller, view.ledger, node_view.node_rows(view.ledger))
    return rows


def node(view: ReadView, caller: Caller, name: str) -> Json:
    """One node. Raises NotFound."""
    row: Json = redacted_for(caller, view.ledger, node_view.node_row(view.ledger, name))
    return row


def links(view: ReadView, caller: Caller) -> list[Json]:
    """The links of which a source reports that they carry less."""
    return link_view.link_rows(view.ledger)


def explained(view: ReadView, caller: Caller, word: str) -> Json:
    """Why a job, or a service, is where it is. Raises NotFound."""
    try:
        job = _job_or_service(view, caller, word)
    except NotFound as error:
        return history_view.explanation_of(history_view.instead_of(error, view, caller, word))
    explained = job_view.explanation(why(view.ledger, job, now=view.now))
    state = view.ledger.find(job)
    explained |= {"attempt": state.attempt if state else None, "check": None, "stragglers": []}
    redacted: Json = redacted_for(caller, view.ledger, explained)
    return redacted


def _job_or_service(view: ReadView, caller: Caller, word: str) -> str:
    """The service of this name, else the job that a word means. Raises NotFound."""
    service = view.ledger.services.get(word)
    if service is not None and permissions.sees_service(caller, service):
        return word
    return job_for(view, caller, word, Need.SEE)


def start(view: ReadView, caller: Caller, word: str) -> Json:
    """When a job starts. Raises NotFound."""
    job = job_for(view, caller, word, Need.SEE)
    start = start_view.when_json(view.ledger, job, view.now)
    redacted: Json = redacted_for(caller, view.ledger, start)
    return redacted


def what_if(view: ReadView, caller: Caller, word: str, changes: Sequence[Change]) -> Json:
    """What would become of a job if it were otherwise. Raises NotFound, and BadInput for changes that cannot be."""
    job = job_for(view, caller, word, Need.SEE)
    found = alternatives(view.ledger, job, changes, view.now)
    redacted = [start_view.alternative_json(each) for each in found]
    redacted = redacted_for(caller, view.ledger, redacted)
    return {"job": job, "asked_at": view.now, "alternatives": redacted}


def forecast_of(view: ReadView, caller: Caller, event: JobSubmitted) -> Json:
    """When and where a job would start that is not submitted yet. Raises Conflict where it would be rejected."""
    found = start_view.alternative_json(forecast(view.ledger, replace(event, observed_at=view.now)))
    redacted: Json = redacted_for(caller, view.ledger, found)
    return {"job": event.job, "asked_at": view.now, "forecast": redacted}


def moves(view: ReadView, word: str) -> tuple[Json, Defragmentation | None]:
    """The moves that would let a waiting job start, for people and as a request carries them.

    Raises NotFound, and Conflict where it does not wait.
    """
    job = view.resolve(word)
    plan, reason = view.moves_for(job)
    return start_view.defragmentation_json(job, plan, reason), plan


def policy_in_force(view: ReadView) -> Json:
    """The version that rules."""
    return policy_view.in_force(view.ledger)


def policy_versions(view: ReadView) -> list[Json]:
    """All versions, without their texts."""
    return [policy_view.version_row(version) for version in view.ledger.policies]


def policy_version(view: ReadView, number: int) -> Json:
    """One version with its text. Raises NotFound."""
    return policy_view.version(version_of(view.ledger, number))


def policy_change(view: ReadView, submitted: PolicyText) -> Json:
    """What a policy would change. Raises BadInput where it is wrong or does not suit."""
    return policy_view.change(tried(view, submitted))
