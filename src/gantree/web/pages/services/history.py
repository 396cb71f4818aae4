"""What happened to a service lately, of the journal's facts: its changes in words, and its replicas over time."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.service_state import ServiceState
from gantree.core.services.replicas import live_replicas
from gantree.journal.contract import RecordedFact
from gantree.model.facts import AttemptEnded, Fact
from gantree.model.service_facts import (
    ReplicaReadinessNoted,
    ServiceAccepted,
    ServiceEnding,
    ServiceScaled,
    ServiceUpdated,
)
from gantree.model.services import Keeper
from gantree.web.pages.timeline.rows import fact_row

Json = dict[str, Any]
LATELY_S = 86_400.0
SHOWN = 50

Steps = tuple[tuple[float, int], ...]
"""A number that changes at moments: (at, number from then on)."""


@dataclass(frozen=True, slots=True)
class ServiceHistory:
    """Rows of what happened, newest first; replicas wanted and ready from `since` on.

    One of them is empty where it is on nobody's record: when pods of Kubernetes were ready, or how many of them others
    wanted.
    """

    since: float
    rows: list[Json]
    wanted: Steps
    ready: Steps


def history_of(view: ReadView, service: ServiceState) -> ServiceHistory:
    """The last day of a service, as far as the journal still has it."""
    journal = view.journal
    since = max(service.accepted_at, view.now - LATELY_S)
    after = max(journal.compacted_to(), journal.facts_before(since))
    own = list(journal.facts_about(service.service, after, journal.last_fact()))
    wanted = () if service.keeper is Keeper.PODS else tuple(_wanted(service, own, since))
    ready: Steps = ()
    if service.keeper is Keeper.GANTREE:
        states = live_replicas(view.ledger, service)
        ready_now = {each.job for each in states if each.replica.ready}
        about_replicas = _about_replicas(view, service.service, after)
        ready = tuple(_ready(ready_now, about_replicas, since))
    rows = [fact_row(each) for each in reversed(own)][:SHOWN]
    return ServiceHistory(since, rows, wanted, ready)


def _wanted(
    service: ServiceState, facts: Sequence[RecordedFact], since: float
) -> Iterator[tuple[float, int]]:
    """What was wanted; before the first change on record, what that changed."""
    number: int | None = None
    for fact in (each.fact for each in facts):
        before, after = _numbers(fact, number)
        if number is None and before is not None:
            yield since, before
        if after is not None and after != number:
            yield max(since, fact.at), after
            number = after
    if number is None:
        yield since, service.wanted


def _numbers(fact: Fact, number: int | None) -> tuple[int | None, int | None]:
    """The number that a fact says was wanted before, and from then on; None where it does not say."""
    match fact:
        case ServiceAccepted(replicas=replicas):
            return None, replicas
        case ServiceScaled(replicas=replicas, before=before):
            return before, replicas
        case ServiceUpdated(spec=spec) if number is not None:
            return None, min(max(number, spec.replicas.min), spec.replicas.max)
        case ServiceEnding():
            return None, 0
    return None, None


def _about_replicas(
    view: ReadView, service: str, after: int
) -> list[ReplicaReadinessNoted | AttemptEnded]:
    """Readiness, and the ends of attempts, of the replicas of a service, in order."""
    found = [
        (each.seq, each.fact)
        for kind in (ReplicaReadinessNoted, AttemptEnded)
        for each in view.journal.facts_of(kind, after)
    ]
    return [
        fact
        for _, fact in sorted(found, key=itemgetter(0))
        if isinstance(fact, ReplicaReadinessNoted | AttemptEnded) and _is_of(service, fact.job)
    ]


def _ready(
    ready_now: Set[str], facts: Sequence[ReplicaReadinessNoted | AttemptEnded], since: float
) -> Iterator[tuple[float, int]]:
    """How many replicas were ready.

    Ready at first are those of which nothing is on record and that are ready now, and those of which the first that is
    on record is that they ceased to be.
    """
    ready = {job for job in ready_now if all(fact.job != job for fact in facts)}
    known: set[str] = set()
    for fact in facts:
        if fact.job not in known and isinstance(fact, ReplicaReadinessNoted) and not fact.ready:
            ready.add(fact.job)
        known.add(fact.job)
    yield since, len(ready)
    for fact in facts:
        is_ready = isinstance(fact, ReplicaReadinessNoted) and fact.ready
        if is_ready is not (fact.job in ready):
            (ready.add if is_ready else ready.discard)(fact.job)
            yield max(since, fact.at), len(ready)


def _is_of(service: str, job: str) -> bool:
    """Whether a job is a replica of a service, by its name."""
    name, _, number = job.rpartition(".")
    return name == service and number.isdecimal()
