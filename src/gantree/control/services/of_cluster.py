"""The services that a cluster keeps itself (GangServices of Kubernetes), as a ledger has services.

Whoever reads services and their replicas in a ledger (lists and pages, the table of routes, the autoscaler, metrics)
reads these in the same way. Their replicas have the names of their objects, and stand under these in the ledger beside
their jobs.
"""

from copy import copy
from dataclasses import replace

from gantree.control.engine.controller import Controller
from gantree.control.requests.read_view import ReadView
from gantree.control.requests.service_commands import ServiceCommands
from gantree.control.services.cluster_commands import ClusterServiceCommands
from gantree.core.ledger.job_parts import ReplicaState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.executors.served_services import ClusterServices, ServedReplica, ServedService
from gantree.model.phases import Phase
from gantree.model.replicas import CACHE_EVENTS, CACHE_REPLAY, Endpoint, ReplicaOf
from gantree.model.services import Keeper, ServiceSpec


def services_ledger(controller: Controller) -> Ledger:
    """The ledger, or of a cluster that keeps services a copy in which they are; to read, until the next step."""
    own = controller.cluster_services
    return controller.ledger if own is None else with_services(controller.ledger, own)


def services_view(controller: Controller) -> ReadView:
    """What questions about services are answered from, until the next step."""
    return replace(controller.read_view(), ledger=services_ledger(controller))


def service_commands(controller: Controller) -> ServiceCommands | ClusterServiceCommands:
    """Takes commands for services, wherever they are kept."""
    own = controller.cluster_services
    if own is None:
        return controller.services
    return ClusterServiceCommands(services_ledger(controller), own)


def with_services(ledger: Ledger, own: ClusterServices) -> Ledger:
    """A ledger with the services of a cluster alone, and beside all jobs their replicas."""
    view = copy(ledger)
    view.applied = ledger.applied + own.changes
    view.services, view.jobs = {}, dict(ledger.jobs)
    for service in own.served:
        state = _service_state(service)
        view.services[state.service] = state
        for each in service.replicas:
            replica = _replica(ledger, service, each)
            state.replicas[each.replica] = None
            view.jobs[each.replica] = replica
            if service.of_pods:  # what one of them is, its pods alone say
                roles = state.spec.replica.roles or replica.spec.roles
                state.spec = replace(state.spec, replica=replace(state.spec.replica, roles=roles))
    return view


def _service_state(service: ServedService) -> ServiceState:
    scaled = service.scaled
    return ServiceState(
        service=service.spec.name,
        spec=service.spec,
        revision=service.revision,
        wanted=service.wanted,
        accepted_at=service.made_at,
        updated_at=service.made_at,
        scaled_at=None if scaled is None else scaled.at,
        scaled_for="" if scaled is None else scaled.reason,
        scaled_automatically=scaled is not None and scaled.automatic,
        reason=service.reason,
        keeper=Keeper.PODS if service.of_pods else Keeper.GANGSERVICE,
    )


def _replica(ledger: Ledger, service: ServedService, replica: ServedReplica) -> JobState:
    """A replica as the state of its job; of one that has none yet, that it starts."""
    spec = service.spec
    named = ReplicaOf(
        spec.name, replica.number, replica.revision, spec.port, spec.ready, name=replica.replica
    )
    job = ledger.jobs.get(replica.job)
    if job is None:
        return JobState(
            job=replica.job,
            spec=replace(spec.replica, service=named),
            priority=0,
            seq=0,
            signature=0,
            submitted_at=service.made_at,
            phase=Phase.STARTING,
            replica=_replica_state(spec, replica, listens=False),
        )
    listens = job.placement is not None and job.attempt == replica.attempt and bool(replica.host)
    return replace(
        job,
        spec=replace(job.spec, service=named),
        replica=_replica_state(spec, replica, listens=listens),
    )


def _replica_state(spec: ServiceSpec, replica: ServedReplica, *, listens: bool) -> ReplicaState:
    """What a ledger has of a replica; the end of a drain is 0 where its cluster alone knows it."""
    is_ready = replica.ready and listens
    return ReplicaState(
        endpoints=_endpoints(spec, replica) if listens else (),
        ready=is_ready,
        was_ready=is_ready or replica.since is not None,
        since=replica.since,
        reason=replica.reason,
        drain_ends_at=(replica.drain_ends_at or 0.0) if replica.draining else None,
    )


def _endpoints(spec: ServiceSpec, replica: ServedReplica) -> tuple[Endpoint, ...]:
    ports = {CACHE_EVENTS: spec.cache_events_port, CACHE_REPLAY: spec.cache_replay_port}
    of_caches = (Endpoint(kind, 0, replica.host, port) for kind, port in ports.items() if port)
    return (Endpoint("", 0, replica.host, replica.port), *of_caches)
