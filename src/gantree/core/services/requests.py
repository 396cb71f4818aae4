"""Handles requests about services, and what is reported of their replicas."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.service_state import ServiceState
from gantree.core.lifecycle.lifecycle import current_attempt, stop, unfit
from gantree.core.lifecycle.replica_drains import drains_for_another
from gantree.core.services.replicas import end_replica, live_replicas, replica_job
from gantree.model.errors import BadInput
from gantree.model.events import (
    Event,
    ReplicaDrained,
    ReplicaReadinessChanged,
    ServiceScaleObserved,
    ServiceScaleRequested,
    ServiceSubmitted,
)
from gantree.model.phases import StopCause
from gantree.model.service_facts import (
    ReplicaReadinessNoted,
    ServiceAccepted,
    ServiceEnding,
    ServiceRejected,
    ServiceScaled,
    ServiceUpdated,
)
from gantree.model.services import ServiceSpec
from gantree.policy.rules import Policy


def first_number(spec: ServiceSpec) -> int:
    """How many replicas a new service has: the least and the spare ones; at least one where nothing scales it."""
    count = spec.replicas
    least = count.min if spec.scaling.targets else max(1, count.min)
    return count.within(least + count.spare)


def is_same_replica(one: ServiceSpec, other: ServiceSpec) -> bool:
    """Whether replicas of both are alike, so that none has to be replaced: by whose choice it is here changes none."""
    replica = replace(one.replica, assignment=other.replica.assignment)
    return (replica, *_listens(one)) == (other.replica, *_listens(other))


def _listens(spec: ServiceSpec) -> tuple[object, ...]:
    return spec.port, spec.ready, spec.cache_events_port, spec.cache_replay_port


def _submitted(builder: DecisionBuilder, event: ServiceSubmitted, policy: Policy) -> None:
    service, spec = builder.ledger.services.get(event.service), event.spec
    reason = _unfit(builder, event, policy)
    if reason:
        builder.record(ServiceRejected(at=builder.now, service=event.service, reason=reason))
    elif service is None or not service.is_live:
        revision = 1 if service is None else int(service.revision) + 1
        number = first_number(spec)
        builder.record(
            ServiceAccepted(
                at=builder.now, service=event.service, spec=spec, replicas=number, revision=revision
            )
        )
    elif service.spec != spec:
        revision = int(service.revision) + (not is_same_replica(service.spec, spec))
        builder.record(
            ServiceUpdated(at=builder.now, service=event.service, spec=spec, revision=revision)
        )


def _unfit(builder: DecisionBuilder, event: ServiceSubmitted, policy: Policy) -> str:
    """Why a service is not taken; "" if it is."""
    ledger, replica = builder.ledger, event.spec.replica
    service = ledger.services.get(event.service)
    if service is not None and service.is_live and service.is_ending:
        return f"service {event.service} ends, and its replicas drain: submit it again once it has ended"
    if event.service in ledger.jobs or event.service in ledger.arrays:
        return f"{event.service} is the id of a job"
    try:
        policy.priority_of(replica.priority)
    except BadInput as error:
        return str(error)
    return unfit(builder, replica_job(event.spec, 0, 0))


def _scale_requested(
    builder: DecisionBuilder, event: ServiceScaleRequested, policy: Policy
) -> None:
    service = builder.ledger.services.get(event.service)
    if service is None or not service.is_live or service.is_ending:
        return
    number = service.spec.replicas.within(event.replicas)
    if number != service.wanted:
        builder.record(
            ServiceScaled(
                at=builder.now,
                service=event.service,
                replicas=number,
                before=service.wanted,
                reason=event.reason,
                automatic=event.automatic,
            )
        )


def _scale_observed(builder: DecisionBuilder, event: ServiceScaleObserved, policy: Policy) -> None:
    """For the record: the cluster decides about its services."""
    builder.record(
        ServiceScaled(
            at=builder.now,
            service=event.service,
            replicas=event.replicas,
            before=event.before,
            reason=event.reason,
            automatic=event.automatic,
        )
    )


def end_service(
    builder: DecisionBuilder, service: ServiceState, reason: str, policy: Policy
) -> None:
    """End a service: its replicas drain. It has ended once none is left (`reconcile`)."""
    if service.is_ending:
        return
    builder.record(ServiceEnding(at=builder.now, service=service.service, reason=reason))
    for state in live_replicas(builder.ledger, service):
        end_replica(builder, service, state, reason, policy)


def _readiness_changed(
    builder: DecisionBuilder, event: ReplicaReadinessChanged, policy: Policy
) -> None:
    state = current_attempt(builder, event.job, event.attempt)
    if state is None or state.spec.service is None or state.replica.ready == event.ready:
        return
    builder.record(
        ReplicaReadinessNoted(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            ready=event.ready,
            reason=event.reason,
        )
    )


def _drained(builder: DecisionBuilder, event: ReplicaDrained, policy: Policy) -> None:
    state = current_attempt(builder, event.job, event.attempt)
    if state is None:
        return
    if drains_for_another(state):
        assert state.stop_cause is not None
        stop(builder, state, state.stop_cause, policy)
    elif state.replica.draining and not state.leaving:
        stop(builder, state, StopCause.CANCELLED, policy, state.replica.drain_reason)


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    ServiceSubmitted: _submitted,
    ServiceScaleRequested: _scale_requested,
    ServiceScaleObserved: _scale_observed,
    ReplicaReadinessChanged: _readiness_changed,
    ReplicaDrained: _drained,
}
