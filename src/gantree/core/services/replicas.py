"""Replicas of a service: how one begins, drains and ends. Each is a job, with the life of every job."""

from dataclasses import replace

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import accept, end_job, stop
from gantree.model.jobs import Job
from gantree.model.phases import Phase, StopCause
from gantree.model.replicas import ReplicaOf
from gantree.model.service_facts import ReplicaDraining
from gantree.policy.rules import Policy


def replica_name(service: str, number: int) -> str:
    """The name, and job id, of a replica by its number."""
    return f"{service}.{number}"


def service_of(ledger: Ledger, state: JobState) -> ServiceState | None:
    """The service of a replica; None for other jobs."""
    replica = state.spec.service
    return None if replica is None else ledger.services.get(replica.service)


def live_replicas(ledger: Ledger, service: ServiceState) -> list[JobState]:
    """The replicas of a service that have not ended, by rising number."""
    return [ledger.jobs[job] for job in service.replicas]


def is_ending(state: JobState) -> bool:
    """Whether a replica drains, or stops for good: it does not count any more."""
    return state.replica.draining or (
        state.leaving and state.stop_cause is StopCause.CANCELLED
    )  # fmt: skip


def add_replica(builder: DecisionBuilder, service: ServiceState, policy: Policy) -> None:
    """Accept one more replica, under the next number whose job id was never used."""
    ledger, number = builder.ledger, service.next_number
    while _is_taken(ledger, replica_name(service.service, number)):
        number += 1
    accept(builder, replica_name(service.service, number), _spec(ledger, service, number), policy)


def _is_taken(ledger: Ledger, job: str) -> bool:
    return job in ledger.jobs or job in ledger.arrays or job in ledger.rejected


def _spec(ledger: Ledger, service: ServiceState, number: int) -> Job:
    """The job of a new replica; not preemptible as long as fewer of its revision are than the floor of the service."""
    spec = service.spec
    on_floor = sum(
        not state.spec.preemptible
        for state in live_replicas(ledger, service)
        if not is_ending(state) and is_current(service, state)
    )
    return replace(
        spec.replica,
        name=replica_name(service.service, number),
        preemptible=spec.replica.preemptible and on_floor >= spec.replicas.floor,
        service=ReplicaOf(service.service, number, service.revision, spec.port, spec.ready),
    )


def is_current(service: ServiceState, state: JobState) -> bool:
    """Whether a replica runs what the service describes today."""
    return state.spec.service is not None and state.spec.service.revision == service.revision


def end_replica(
    builder: DecisionBuilder, service: ServiceState, state: JobState, reason: str, policy: Policy
) -> None:
    """Let a replica end: at once where no request is sent to it, else once it has drained."""
    if state.phase is Phase.PENDING:
        end_job(builder, state, Phase.CANCELLED, None, reason)
    elif not is_ending(state) and (state.leaving or not state.replica.was_ready):
        stop(builder, state, StopCause.CANCELLED, policy, reason)
    elif not is_ending(state):
        ends_at = builder.now + service.spec.drain_s
        builder.record(
            ReplicaDraining(
                at=builder.now,
                job=state.job,
                attempt=state.attempt,
                ends_at=ends_at,
                reason=reason,
            )
        )
