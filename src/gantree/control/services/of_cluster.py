"""The services that a cluster keeps itself (GangServices of Kubernetes), as a ledger has services.

Whoever reads services and their replicas in a ledger (the table of routes, the autoscaler) reads these in the same way.
Their replicas have other names here than their jobs: those of the objects.
"""

from copy import copy
from dataclasses import replace

from gantree.control.engine.controller import Controller
from gantree.core.ledger.job_parts import ReplicaState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.executors.served_services import ClusterServices, ServedReplica, ServedService
from gantree.model.replicas import CACHE_EVENTS, CACHE_REPLAY, Endpoint
from gantree.model.services import ServiceSpec


def services_ledger(controller: Controller) -> Ledger:
    """The ledger, or of a cluster that keeps services a copy in which they are; to read, until the next step."""
    own = controller.cluster_services
    return controller.ledger if own is None else with_services(controller.ledger, own)


def with_services(ledger: Ledger, own: ClusterServices) -> Ledger:
    """A ledger with the services of a cluster alone, and their replicas."""
    view = copy(ledger)
    view.applied = ledger.applied + own.changes
    view.services, view.jobs = {}, {}
    for service in own.served:
        state = _service_state(service)
        view.services[state.service] = state
        for each in service.replicas:
            job = ledger.jobs.get(each.job)
            if job is not None and job.placement is not None and job.attempt == each.attempt:
                state.replicas[each.replica] = None
                view.jobs[each.replica] = replace(
                    job, job=each.replica, replica=_replica_state(service.spec, each)
                )
    return view


def _service_state(service: ServedService) -> ServiceState:
    return ServiceState(
        service=service.spec.name,
        spec=service.spec,
        revision=1,
        wanted=service.wanted,
        accepted_at=0.0,
        updated_at=0.0,
    )


def _replica_state(spec: ServiceSpec, replica: ServedReplica) -> ReplicaState:
    """What a ledger has of a replica; when its drain ends, its cluster knows."""
    ports = {CACHE_EVENTS: spec.cache_events_port, CACHE_REPLAY: spec.cache_replay_port}
    of_caches = (Endpoint(kind, 0, replica.host, port) for kind, port in ports.items() if port)
    return ReplicaState(
        endpoints=(Endpoint("", 0, replica.host, replica.port), *of_caches),
        ready=replica.ready,
        was_ready=replica.ready,
        drain_ends_at=0.0 if replica.draining else None,
    )
