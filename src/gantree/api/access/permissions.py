"""Authorisation. Each route declares the permission that it needs (`needs`); `permitted` refuses callers without it.

For a need about one job, `permitted` checks only that the caller has a role at all; the route then calls `job_for`,
which checks the job's user and queue. A job that the caller may not see does not exist for him. A route that states no
need is refused to everybody.

An answer that names other jobs goes through `redacted_for`, which writes `ANOTHER` for jobs that the caller may not
see.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache, partial
from itertools import chain
from typing import Any, Protocol

from starlette.requests import HTTPConnection

from gantree.api.access.access import Caller, CurrentCaller
from gantree.control.requests.job_ids import job_of
from gantree.control.requests.service_commands import service_named
from gantree.control.requests.submissions import submitted_event_id
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.journal.contract import Journal
from gantree.model.access import Power, is_within
from gantree.model.errors import Forbidden, NotFound
from gantree.model.events import JobSubmitted
from gantree.model.jobs import Job

ANOTHER = "another job"
"""How an answer calls a job that its reader may not see."""
KEY = "x-needs"
"""Where the OpenAPI has a route's need."""


class Need(StrEnum):
    """The permission that a route needs. SEE, READ and CHANGE concern one job and its owner."""

    OPEN = "open"
    """Anybody at all; such a route stands behind no `permitted`."""
    KNOWN = "known"
    """Anybody with a role; what he may not see is left out."""
    SEE = "see"
    READ = "read"
    CHANGE = "change"
    SUBMIT = "submit"
    SEE_ALL = "see-all"
    OPERATE = "operate"
    ROUTE = "route"
    """Whoever sends requests to replicas; which services, the route tells by their queues."""


_OF_ALL = {Need.SEE_ALL: Power.SEE, Need.OPERATE: Power.OPERATE}
_OF_JOB = {
    Need.SEE: (Power.SEE, Power.SEE_OWN),
    Need.READ: (Power.READ, Power.READ_OWN),
    Need.CHANGE: (Power.CHANGE, Power.CHANGE_OWN),
}
_SENTENCES = frozenset({"sentence", "reason", "because", "why"})
_OTHERS = frozenset({"by", "ahead", "waits_for", "victims", "preempted_by"})
_NAMES = _OTHERS | {"job"}
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class HiddenJob(NotFound):
    """The job exists, but the caller may not see it. Only the audit log records the difference from NotFound."""


class JobLookup(Protocol):
    """Where jobs are looked up: the controller, or a `Reading`."""

    @property
    def ledger(self) -> Ledger:
        """What there is."""
        ...

    @property
    def journal(self) -> Journal:
        """What happened."""
        ...

    def resolve(self, word: str) -> str:
        """The id of a job. Raises NotFound, and Conflict for one that was set aside."""
        ...


def needs(need: Need) -> dict[str, Any]:
    """What the decorator of a route says of what it needs."""
    return {"openapi_extra": {KEY: need.value}}


def need_of(connection: HTTPConnection) -> Need | None:
    """What the route of a request needs; None where it does not say."""
    stated = getattr(connection.scope.get("route"), "openapi_extra", None) or {}
    return Need(stated[KEY]) if KEY in stated else None


async def permitted(connection: HTTPConnection, caller: CurrentCaller) -> None:
    """Let a request through, as far as its route alone can tell. Raises Forbidden."""
    need = need_of(connection)
    if need is None:
        raise Forbidden("the route states no permission, so it is refused to everybody")
    check_need(caller, need)


def check_need(caller: Caller, need: Need) -> None:
    """Raise Forbidden where no grant of a caller could ever do."""
    if not caller.grants:
        raise Forbidden(f"{caller.name} has no role here; an operator gives one in the access file")
    routes = any(Power.ROUTE in each.powers for each in caller.grants)
    if need is Need.ROUTE and not routes:
        raise Forbidden(f"{caller.name} may not do this: it needs the role router")
    if need is not Need.ROUTE and all(each.powers == Power.ROUTE for each in caller.grants):
        raise Forbidden(
            f"{caller.name} is a router: it may read routes, report requests, and nothing else"
        )
    if need in _OF_ALL and not caller.may(_OF_ALL[need], ""):
        role = "an operator" if need is Need.OPERATE else "a viewer of all queues"
        raise Forbidden(f"{caller.name} may not do this: it needs {role}")
    if need is Need.SUBMIT and not any(Power.SUBMIT in each.powers for each in caller.grants):
        raise Forbidden(f"{caller.name} may view jobs but not submit any")


def has(caller: Caller, need: Need, user: str, queue: str) -> bool:
    """Whether a caller may see, read or change a job of a user in a queue."""
    others, own = _OF_JOB[need]
    return caller.may(others, queue) or (user == caller.name and caller.may(own, queue))


def sees(caller: Caller, state: JobState) -> bool:
    """Whether a caller may see a job."""
    return has(caller, Need.SEE, state.spec.user, state.spec.queue)


def sees_service(caller: Caller, service: ServiceState) -> bool:
    """Whether a caller may see a service."""
    replica = service.spec.replica
    return has(caller, Need.SEE, replica.user, replica.queue)


def changes_service(caller: Caller, service: ServiceState) -> bool:
    """Whether a caller may scale, update and cancel a service."""
    replica = service.spec.replica
    return has(caller, Need.CHANGE, replica.user, replica.queue)


def service_for(ledger: Ledger, caller: Caller, name: str, need: Need) -> ServiceState:
    """The service of a name, for a caller. Raises NotFound for one that it may not see, and Forbidden."""
    service = ledger.services.get(name)
    if service is None and not caller.sees_all:
        raise NotFound(f"there is no service {name}")
    service = service_named(ledger, name)
    if not sees_service(caller, service):
        raise HiddenJob(f"there is no service {name}")
    replica = service.spec.replica
    if not has(caller, need, replica.user, replica.queue):
        raise Forbidden(f"{caller.name} may view service {name} but not {need.value} it")
    return service


def job_visibility(caller: Caller) -> Callable[[JobState], bool] | None:
    """As `sees`, for many jobs, evaluated once for each user and queue. None: all jobs."""
    if caller.sees_all:
        return None
    known = cache(partial(has, caller, Need.SEE))
    return lambda state: known(state.spec.user, state.spec.queue)


def job_for(lookup: JobLookup, caller: Caller, word: str, need: Need) -> str:
    """The id of the job that a caller means by an id or a name.

    Raises NotFound for one that it may not see, Forbidden for one that it may see and no more; Conflict for one that
    was set aside, Unreachable for one that no turn has come to yet.
    """
    if caller.may(Power.CHANGE, ""):
        return lookup.resolve(word)
    ledger = lookup.ledger
    known = _known_for(ledger, caller, word)
    job, spec = known or (word, _submitted_spec(lookup, word))
    if spec is None and caller.sees_all:
        return lookup.resolve(word)
    if spec is None or not has(caller, Need.SEE, spec.user, spec.queue):
        is_there = job_of(ledger, word) is not None
        raise (HiddenJob if is_there else NotFound)(f"there is no job {word}")
    if known is None and word not in ledger.rejected:
        return lookup.resolve(word)  # which says that it is history, or not decided about yet
    if not has(caller, need, spec.user, spec.queue):
        raise Forbidden(f"{caller.name} may view {job} but not {need.value} it")
    return job


def _submitted_spec(lookup: JobLookup, word: str) -> Job | None:
    """Return the submission of an id from the journal, for jobs that are not in the ledger or were rejected."""
    event = lookup.journal.event(submitted_event_id(word))
    return event.spec if isinstance(event, JobSubmitted) else None


def _known_for(ledger: Ledger, caller: Caller, word: str) -> tuple[str, Job] | None:
    """The job or array of this id, or the newest of this name, live ones first, among those that a caller may see."""
    job = job_of(ledger, word)
    spec = None if job is None else ledger.spec_of(job)
    if job is None or spec is None:
        return None
    if has(caller, Need.SEE, spec.user, spec.queue):
        return job, spec
    named = (
        (each.job, each.spec)
        for each in reversed(ledger.in_arrival_order())
        if each.spec.name == word
    )
    arrays = (
        (each.array, each.spec)
        for each in reversed(ledger.arrays.values())
        if each.spec.name == word
    )
    found = [
        each for each in (*named, *arrays) if has(caller, Need.SEE, each[1].user, each[1].queue)
    ]
    live = (each for each in found if not ledger.is_over(each[0]))
    return next(chain(live, found), (job, spec))


def check_submission(
    caller: Caller, jobs: Iterable[Job], overrides: Mapping[str, Any], user: str, login: str
) -> str:
    """Return the owner of jobs that name none: user, else the caller; login for the daemon's own token.

    Raises Forbidden where he may not hand them in so.
    """
    for job in jobs:
        queue = queue_of(job, overrides)
        if not caller.may(Power.SUBMIT, queue):
            raise Forbidden(f"{caller.name} may not submit jobs to queue {queue}")
        for other in (job.user, user):
            if other not in ("", caller.name) and not caller.may(Power.SUBMIT_FOR, queue):
                raise Forbidden(f"{caller.name} may not submit jobs of {other} to queue {queue}")
    return user or (caller.name if caller.is_person else login)


def queue_of(job: Job, overrides: Mapping[str, Any]) -> str:
    """The queue that a job is handed in to."""
    return str(overrides.get("queue", job.queue))


def routes_queue(caller: Caller, queue: str) -> bool:
    """Whether a caller may send requests to the services of a queue."""
    return caller.may(Power.ROUTE, queue)


def sees_queue(caller: Caller, queue: str) -> bool:
    """Return whether a caller may see a queue: a grant covers it, or a queue below it."""
    return any(each.covers(queue) or is_within(each.queue, queue) for each in caller.grants)


def redacted_for(caller: Caller, ledger: Ledger, value: Any) -> Any:
    """Return plain values for a caller: names of jobs that he may not see are removed from fields and sentences."""
    if caller.sees_all:
        return value
    return _redacted(
        value,
        "",
        lambda word: _is_hidden(caller, ledger, word),
        lambda word: word != "" and ledger.spec_of(word) is None,
    )


def _is_hidden(caller: Caller, ledger: Ledger, word: str) -> bool:
    spec = ledger.spec_of(word)
    if spec is None:
        return word in ledger.rejected
    return not has(caller, Need.SEE, spec.user, spec.queue)


def _redacted(
    value: Any, name: str, hidden: Callable[[str], bool], forgotten: Callable[[str], bool]
) -> Any:
    """forgotten: whether a job name belongs to a forgotten job, whose owner is unknown."""
    if isinstance(value, str):
        if name in _NAMES:
            return ANOTHER if hidden(value) or (name in _OTHERS and forgotten(value)) else value
        return _sentence(value, hidden) if name in _SENTENCES else value
    if isinstance(value, Mapping):
        return {
            key: _redacted(each, key, hidden, forgotten)
            for key, each in value.items()
            if key != "spec"
        } | ({"spec": value["spec"]} if "spec" in value else {})
    if isinstance(value, Sequence):
        return [_redacted(each, name, hidden, forgotten) for each in value]
    return value


def _sentence(text: str, hidden: Callable[[str], bool]) -> str:
    """Words that are ids lose their names; a full stop at the end of an id is the sentence's."""

    def without_name(match: re.Match[str]) -> str:
        word = match[0]
        bare = word.rstrip(".")
        if hidden(word):
            return ANOTHER
        return ANOTHER + word[len(bare) :] if hidden(bare) else word

    return _WORD.sub(without_name, text)
