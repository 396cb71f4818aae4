"""A GangService in the words of services: for routers, where its replicas listen, and for autoscalers. Pure."""

from collections.abc import Sequence

from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.pods.gang_spec import (
    InvalidObject,
    Spec,
    count,
    table,
    tables,
    text,
)
from gantree.executors.kubernetes.services.gang_service import GangService
from gantree.executors.kubernetes.services.replica_jobs import PRIORITY, revision_of
from gantree.executors.kubernetes.services.replicas import Replica
from gantree.executors.kubernetes.workloads.gangjob import gang_spec
from gantree.executors.kubernetes.workloads.gangs import DEFAULT_QUEUE
from gantree.executors.served_services import Scaled, ServedReplica, ServedService
from gantree.model.jobs import Job, Role, Shape
from gantree.model.services import ReplicaCount, ServiceSpec


def served_service(
    service: GangService,
    replicas: Sequence[Replica],
    made_at: float,
    reason: str,
    scaled: Scaled | None,
) -> ServedService:
    """A service as it is now; reason is why it is not as it is wanted."""
    return ServedService(
        spec=_spec_of(service),
        wanted=service.wanted,
        replicas=tuple(_served(service, each) for each in replicas),
        revision=revision_of(service),
        made_at=made_at,
        reason=reason,
        scaled=scaled,
    )


def unreadable_service(group: Group, made_at: float, reason: str) -> ServedService:
    """A service of which only the name is known, and why."""
    meta, told = group.metadata, group.spec.get("template")
    name = f"{meta.namespace}.{meta.name}"
    try:
        queue = text(table(table({"template": told}, "template"), "spec"), "queue")
    except InvalidObject:
        queue = None
    replica = Job(name=name, roles=(), queue=queue or DEFAULT_QUEUE, user=meta.namespace)
    spec = ServiceSpec(name, replica, ReplicaCount(min=0))
    return ServedService(spec, 0, (), made_at=made_at, reason=reason)


def _spec_of(service: GangService) -> ServiceSpec:
    return ServiceSpec(
        name=service.full_name,
        replica=_job_of(service),
        replicas=service.replicas,
        port=service.port,
        ready=service.ready,
        update=service.update,
        drain_s=service.drain_s,
        spread=service.spread,
        spread_required=service.spread_required,
        scaling=service.scaling,
        routing=service.routing,
        cache_events_port=service.cache_events_port,
        cache_replay_port=service.cache_replay_port,
    )


def _job_of(service: GangService) -> Job:
    """What a replica is, as far as its template says it in gantree's words."""
    told = gang_spec(table(service.template, "spec"))
    asked: dict[str, Spec] = {
        text(role, "role") or "worker": table(role, "each")
        for role in tables(table(service.template, "spec"), "gang")
    }
    roles = tuple(
        Role(each.name, each.members, Shape(gpus=count(asked[each.name], "gpus") or 0))
        for each in told.roles
    )
    queue, priority = told.queue or DEFAULT_QUEUE, told.priority
    return Job(
        name=service.full_name,
        roles=roles,
        queue=queue,
        priority=PRIORITY if priority is None else priority,
        user=service.namespace,
    )


def _served(service: GangService, replica: Replica) -> ServedReplica:
    """A replica, and where its first pod listens once that has an address."""
    first, state = replica.first, replica.state
    listens = first is not None and state is not None and state.placement is not None
    leaves = state is not None and state.leaving
    goes = first is not None and first.metadata.deletion_timestamp is not None
    return ServedReplica(
        replica=f"{service.namespace}.{replica.name}",
        job="" if state is None else state.job,
        attempt=0 if state is None else state.attempt,
        host=first.status.pod_ip if first is not None and listens else "",
        port=service.port,
        ready=replica.is_ready,
        draining=replica.is_ending or leaves or goes,
        number=replica.number,
        revision=replica.revision,
        drain_ends_at=replica.drain_until,
        since=replica.since,
        reason="" if replica.is_ready else replica.reason,
    )
