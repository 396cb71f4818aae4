"""Replicas of a service: how one begins, drains and ends. Each is a job, with the life of every job."""

from collections.abc import Iterable
from dataclasses import replace

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import accept, end_job, stop, unfit
from gantree.core.lifecycle.replica_drains import drains_for_another
from gantree.model.jobs import Job
from gantree.model.phases import HOLDING, Phase, StopCause
from gantree.model.replicas import ReplicaOf, Revision
from gantree.model.service_facts import ReplicaDraining
from gantree.model.services import ServiceSpec
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


def name_of(state: JobState) -> str:
    """The name of a replica: the id of its job, unless a cluster names its replicas itself."""
    replica = state.spec.service
    return state.job if replica is None else replica.name or state.job


def is_ending(state: JobState) -> bool:
    """Whether a replica drains, or stops for good: it does not count any more."""
    stops = state.leaving and state.stop_cause is StopCause.CANCELLED
    return stops or state.replica.draining


def takes_requests(state: JobState) -> bool:
    """Whether requests may be sent to a replica."""
    runs = state.phase is Phase.RUNNING and not state.suspended
    return runs and state.replica.ready and not state.replica.draining


def holds_place(state: JobState) -> bool:
    """Whether a replica holds a place."""
    return state.placement is not None and state.phase in HOLDING


def jobs_of(replicas: Iterable[JobState]) -> list[JobState]:
    """The states of replicas, of those that are pods of one job only one."""
    return list({each.job: each for each in replicas}.values())


def add_replica(builder: DecisionBuilder, service: ServiceState, policy: Policy) -> bool:
    """Accept one more replica, under the next number whose job id was never used. False where its job does not suit
    the fabric or the queues any more."""
    ledger, number = builder.ledger, service.next_number
    while _is_taken(ledger, replica_name(service.service, number)):
        number += 1
    floor = service.spec.replicas.floor
    preemptible = not floor or _on_floor(ledger, service) >= floor
    job = replica_job(service.spec, number, service.revision, preemptible=preemptible)
    if unfit(builder, job):
        return False
    accept(builder, job.name, job, policy)
    return True


def _is_taken(ledger: Ledger, job: str) -> bool:
    """Whether an id is that of a job, or the name of a service: `gantree cancel NAME` must mean one of them."""
    of_job = job in ledger.jobs or job in ledger.arrays or job in ledger.rejected
    return of_job or job in ledger.services


def _on_floor(ledger: Ledger, service: ServiceState) -> int:
    """How many replicas that stay are not preemptible."""
    firm = (state for state in live_replicas(ledger, service) if not state.spec.preemptible)
    return sum(is_current(ledger, service, state) and not is_ending(state) for state in firm)


def replica_job(
    spec: ServiceSpec, number: int, revision: Revision, *, preemptible: bool = True
) -> Job:
    """The job of a replica."""
    name, job = replica_name(spec.name, number), spec.replica
    return replace(
        job,
        name=name,
        preemptible=job.preemptible and preemptible,
        topology=spec.replica_topology,
        service=ReplicaOf(
            spec.name,
            number,
            revision,
            spec.port,
            spec.ready,
            spec.cache_events_port,
            spec.cache_replay_port,
        ),
    )


def is_current(ledger: Ledger, service: ServiceState, state: JobState) -> bool:
    """Whether a replica runs what the service describes now, on nodes that it need not leave."""
    return runs_description(service, state) and not _leaves(ledger, state)


def runs_description(service: ServiceState, state: JobState) -> bool:
    """Whether a replica runs what the service describes now: it is of the newest revision, or of an earlier one that
    is the same, as after an update that was taken back.
    """
    replica = state.spec.service
    assert replica is not None
    number, revision = replica.number, replica.revision
    if revision == service.revision:
        return True
    as_described = replica_job(service.spec, number, revision, preemptible=state.spec.preemptible)
    return state.spec == as_described


def _leaves(ledger: Ledger, state: JobState) -> bool:
    """Whether a replica is on a node that is drained, or unhealthy where the policy has gangs leave those."""
    cordoned = ledger.site.cordoned
    if not cordoned or state.placement is None:
        return False
    here = [cordoned[node] for node in state.placement.nodes if node in cordoned]
    return any(each.drain or (each.unwell and ledger.policy.leave_unwell) for each in here)


def end_replica(
    builder: DecisionBuilder, service: ServiceState, state: JobState, reason: str, policy: Policy
) -> None:
    """Let a replica end: at once where no request is sent to it, else once it has drained."""
    if state.phase is Phase.PENDING:
        end_job(builder, state, Phase.CANCELLED, None, reason)
    elif not is_ending(state) and not _may_drain(service, state):
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


def _may_drain(service: ServiceState, state: JobState) -> bool:
    """Whether requests may be under way to a replica, and it has not been told to stop."""
    stops = state.leaving and not drains_for_another(state)
    return not stops and state.replica.was_ready and service.spec.drain_s > 0
