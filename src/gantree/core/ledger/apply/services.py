"""Applies facts about services, and those about replicas that are no facts of their jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.model.phases import Phase, StopCause
from gantree.model.service_facts import (
    ReplicaDraining,
    ReplicaReadinessNoted,
    ServiceAccepted,
    ServiceEnded,
    ServiceEnding,
    ServiceRejected,
    ServiceScaled,
    ServiceUpdated,
)

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger

MOST_REJECTED = 100
"""So many rejected services are remembered, the last ones."""


def service_accepted(ledger: Ledger, fact: ServiceAccepted) -> None:
    """A service begins; one of this name that has ended leaves its numbers to it."""
    before = ledger.services.pop(fact.service, None)
    assert before is None or not before.is_live, f"{fact.service} accepted twice"
    state = ServiceState(
        fact.service, fact.spec, fact.revision, fact.replicas, accepted_at=fact.at, updated_at=fact.at
    )  # fmt: skip
    state.next_number = 1 if before is None else before.next_number
    ledger.services[fact.service] = state
    ledger.rejected_services.pop(fact.service, None)


def service_rejected(ledger: Ledger, fact: ServiceRejected) -> None:
    """A description of a service was not taken."""
    ledger.rejected_services.pop(fact.service, None)
    ledger.rejected_services[fact.service] = fact.reason
    if len(ledger.rejected_services) > MOST_REJECTED:
        del ledger.rejected_services[next(iter(ledger.rejected_services))]


def service_updated(ledger: Ledger, fact: ServiceUpdated) -> None:
    """A service has another description; what is wanted stays within its bounds."""
    state = ledger.services[fact.service]
    state.spec, state.revision, state.updated_at = fact.spec, fact.revision, fact.at
    state.wanted = fact.spec.replicas.within(state.wanted)
    ledger.rejected_services.pop(fact.service, None)


def service_scaled(ledger: Ledger, fact: ServiceScaled) -> None:
    """Another number of replicas is wanted. A service that its cluster keeps is not in the ledger."""
    state = ledger.services.get(fact.service)
    if state is None:
        return
    state.wanted, state.scaled_at = fact.replicas, fact.at
    state.scaled_for, state.scaled_automatically = fact.reason, fact.automatic


def service_ending(ledger: Ledger, fact: ServiceEnding) -> None:
    """No replica is added any more."""
    state = ledger.services[fact.service]
    state.ending_at, state.reason = fact.at, fact.reason


def service_ended(ledger: Ledger, fact: ServiceEnded) -> None:
    """A service is over."""
    state = ledger.services[fact.service]
    assert not state.replicas, f"{fact.service} has replicas {list(state.replicas)}, and ended"
    state.ended_at, state.reason = fact.at, fact.reason


def replica_accepted(ledger: Ledger, state: JobState) -> None:
    """A job is a replica of a service; of one that is not known where its gang was found running."""
    replica = state.spec.service
    service = None if replica is None else ledger.services.get(replica.service)
    if replica is not None and service is not None:
        service.replicas[state.job] = None
        service.next_number = max(service.next_number, replica.number + 1)


def replica_ended(ledger: Ledger, state: JobState) -> None:
    """The job of a replica has ended."""
    replica = state.spec.service
    service = None if replica is None else ledger.services.get(replica.service)
    if service is not None:
        service.replicas.pop(state.job, None)


def replica_readiness_noted(ledger: Ledger, fact: ReplicaReadinessNoted) -> None:
    """An attempt is ready, or is not any more."""
    state = ledger.jobs[fact.job]
    before = state.replica
    state.replica = replace(
        before,
        ready=fact.ready,
        was_ready=before.was_ready or fact.ready,
        since=fact.at,
        reason=fact.reason,
        ready_by=None if fact.ready else before.ready_by,
    )


def replica_draining(ledger: Ledger, fact: ReplicaDraining) -> None:
    """A replica gets no new requests: it is to end, or its place is taken."""
    state = ledger.jobs[fact.job]
    if fact.cause is not StopCause.CANCELLED:
        ledger.move(state, Phase.SAVING, fact.at)
        state.deadline_at, state.stop_cause = fact.ends_at, fact.cause
        state.replica = replace(state.replica, gone_by=fact.gone_by, ready_by=None)
        return
    state.replica = replace(
        state.replica, drain_ends_at=fact.ends_at, drain_reason=fact.reason, ready_by=None
    )
