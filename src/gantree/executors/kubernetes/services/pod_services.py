"""Services of pods that others make (a Deployment, a LeaderWorkerSet, an InferenceService), for routers. Pure.

A pod with the label `gantree.io/service` and the annotation `gantree.io/port` is a replica, or the one pod of a replica
that answers. Others decide how many there are, and end them: a pod that is to go drains.
"""

from collections.abc import Iterator

from gantree.executors.kubernetes.apiserver.conditions import seconds_of
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.annotations import member_annotation
from gantree.executors.kubernetes.pods.gang_spec import parsed_count
from gantree.executors.kubernetes.services.replicas import is_ready, ready_since, unready_reason
from gantree.executors.kubernetes.workloads.gang_labels import gang_spec_of_pod
from gantree.executors.kubernetes.workloads.gangs import DEFAULT_QUEUE
from gantree.executors.kubernetes.workloads.serving import HIGHEST_PORT, SERVICE
from gantree.executors.served_services import ServedReplica, ServedService
from gantree.model.jobs import Job
from gantree.model.services import ReplicaCount, Routing, ServiceSpec

PORT, MODELS, CONCURRENCY = "gantree.io/port", "gantree.io/models", "gantree.io/concurrency"
REVISIONS = ("pod-template-hash", "controller-revision-hash")
"""Labels by which controllers tell pods of an earlier template from those of the present one."""
Name = tuple[str, str]


class PodServices:
    """All of them, by namespace and name."""

    def __init__(self) -> None:
        self._pods: dict[Name, dict[str, Pod]] = {}
        self._service_of: dict[Name, Name] = {}
        self._served: dict[Name, ServedService] = {}

    def update(self, pod: Pod, *, gone: bool) -> None:
        """A pod was added, has changed, or is gone; most are of no service. One that loses its label leaves it."""
        namespace, name = pod.metadata.namespace, pod.metadata.name
        before = self._service_of.pop((namespace, name), None)
        if before is not None:
            self._served.pop(before, None)
            self._pods[before].pop(name, None)
            if not self._pods[before]:
                del self._pods[before]
        label = pod.metadata.labels.get(SERVICE)
        if gone or not label or _port_of(pod) is None:
            return
        service = (namespace, label)
        self._service_of[namespace, name] = service
        self._served.pop(service, None)
        self._pods.setdefault(service, {})[name] = pod

    def served(self) -> Iterator[tuple[Name, ServedService]]:
        """Each of them as it is now."""
        for name, pods in self._pods.items():
            if name not in self._served:
                self._served[name] = _served_service(name, list(pods.values()))
            yield name, self._served[name]


def _served_service(name: Name, pods: list[Pod]) -> ServedService:
    namespace, service = name
    there = [pod for pod in pods if not pod.has_ended]
    first = (there or pods)[0]
    told = first.metadata.annotations
    models = tuple(word.strip() for word in told.get(MODELS, "").split(",") if word.strip())
    full_name = f"{namespace}.{service}"
    queue = gang_spec_of_pod(first).queue or DEFAULT_QUEUE
    wanted = sum(pod.metadata.deletion_timestamp is None for pod in there)
    spec = ServiceSpec(
        name=full_name,
        replica=Job(name=full_name, roles=(), queue=queue, user=namespace),
        replicas=ReplicaCount(min=wanted, max=max(wanted, 1)),
        routing=Routing(
            models=models or (service,), concurrency=parsed_count(told.get(CONCURRENCY)) or 0
        ),
    )
    in_order = sorted(there, key=lambda pod: pod.metadata.name)
    replicas = [_served(pod, number) for number, pod in enumerate(in_order, start=1)]
    return ServedService(
        spec,
        wanted,
        tuple(replicas),
        of_pods=True,
        revision=_revision_of(max(pods, key=_made_at)),
        made_at=min(map(_made_at, pods)),
    )


def _served(pod: Pod, number: int) -> ServedReplica:
    """A pod; one that is not bound by us yet has no job, and listens nowhere."""
    member = member_annotation(pod.metadata.annotations)
    return ServedReplica(
        replica=f"{pod.metadata.namespace}.{pod.metadata.name}",
        job=member.job if member else "",
        attempt=member.attempt if member else 0,
        host=pod.status.pod_ip if member else "",
        port=_port_of(pod) or 0,
        ready=is_ready(pod),
        draining=pod.metadata.deletion_timestamp is not None,
        number=number,
        revision=_revision_of(pod),
        since=ready_since(pod) if is_ready(pod) else None,
        reason=unready_reason(pod) or _waits_for(pod),
    )


def _revision_of(pod: Pod) -> str:
    """The template that its controller made it of; "" for one without such a label."""
    labels = pod.metadata.labels
    return next((labels[key] for key in REVISIONS if key in labels), "")


def _waits_for(pod: Pod) -> str:
    """Why a pod has no node; "" for others."""
    told = (each for each in pod.status.conditions if each.type == "PodScheduled")
    return next((each.message for each in told if each.status == "False"), "")


def _made_at(pod: Pod) -> float:
    return seconds_of(pod.metadata.creation_timestamp) or 0.0


def _port_of(pod: Pod) -> int | None:
    """The port of a pod that says one."""
    port = parsed_count(pod.metadata.annotations.get(PORT))
    return port if port is not None and port <= HIGHEST_PORT else None
