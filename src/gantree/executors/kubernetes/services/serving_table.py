"""A GangService in the words of services: for routers, where its replicas listen, and for autoscalers. Pure."""

from collections.abc import Sequence

from gantree.executors.kubernetes.pods.gang_spec import Spec, count, table, tables, text
from gantree.executors.kubernetes.services.gang_service import GangService
from gantree.executors.kubernetes.services.replica_jobs import PRIORITY
from gantree.executors.kubernetes.services.replicas import Replica
from gantree.executors.kubernetes.workloads.gangjob import gang_spec
from gantree.executors.kubernetes.workloads.gangs import DEFAULT_QUEUE
from gantree.executors.served_services import ServedReplica, ServedService
from gantree.model.jobs import Job, Role, Shape
from gantree.model.services import ServiceSpec


def served_service(service: GangService, replicas: Sequence[Replica]) -> ServedService:
    """A service as it is now."""
    spec = ServiceSpec(
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
    found = (_served(service, each) for each in replicas)
    return ServedService(spec, service.wanted, tuple(each for each in found if each is not None))


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


def _served(service: GangService, replica: Replica) -> ServedReplica | None:
    """A replica whose first pod has an address; None for others."""
    first, state = replica.first, replica.state
    if first is None or state is None or state.placement is None or not first.status.pod_ip:
        return None
    leaves = state.leaving or first.metadata.deletion_timestamp is not None
    return ServedReplica(
        replica=f"{service.namespace}.{replica.name}",
        job=state.job,
        attempt=state.attempt,
        host=first.status.pod_ip,
        port=service.port,
        ready=replica.is_ready,
        draining=replica.is_ending or leaves,
    )
