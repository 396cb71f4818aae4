"""What makes a GangJob a replica of a GangService: `serving` in its spec, and what its first pod gets from that. Pure.

The first pod answers requests. It has the label by which a Service selects the pods that get requests (it is taken away
when the replica drains), the port, and the probes that `ready` means: the kubelet asks, and its answer is the condition
Ready. A replica that does not become ready within its time is killed by the startup probe, which is a failure as any
other. What a container sets itself stays as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.gang_spec import (
    GroupKind,
    InvalidObject,
    Spec,
    amount,
    count,
    table,
    tables,
    text,
)
from gantree.model.replicas import DEFAULT_READINESS, Readiness

Json = dict[str, Any]

GANGSERVICE = GroupKind("gantree.io", "gangservices", ("v1alpha1",), "gangservice")
SERVICE = "gantree.io/service"
"""A label of a GangJob and of all its pods: the GangService that it is a replica of."""
SERVES = "gantree.io/serves"
"""A label of the pod that requests go to, as long as they may."""
HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Serving:
    """A replica of a service; its first pod listens at port, and is ready as ready says."""

    service: str
    port: int
    ready: Readiness


def serving_of(spec: Spec) -> Serving | None:
    """What the spec of a GangJob says of serving; None for one that is no replica. Raises InvalidObject."""
    told = table(spec, "serving")
    service = text(told, "service")
    if service is None:
        return None
    return Serving(service, port_of(told), readiness_of(told))


def spread_service_of(pod: Pod) -> str:
    """The service of a pod that keeps away from other replicas of it; "" for others."""
    service = pod.metadata.labels.get(SERVICE)
    affinity = pod.spec.affinity
    is_spread = service and affinity is not None and affinity.pod_anti_affinity is not None
    return f"{SERVICE} {pod.metadata.namespace}/{service}" if is_spread else ""


def port_of(spec: Spec) -> int:
    """The port at which the first pod of a replica listens. Raises InvalidObject."""
    port = count(spec, "port")
    if port is None or not 1 <= port <= HIGHEST_PORT:
        raise InvalidObject(f"port is no port from 1 to {HIGHEST_PORT}")
    return port


def readiness_of(spec: Spec) -> Readiness:
    """When a replica is ready. Raises InvalidObject."""
    told = table(spec, "ready")
    path = text(told, "http")
    if path is not None and not path.startswith("/"):
        raise InvalidObject("ready.http does not begin with a slash")
    return Readiness(
        path,
        amount(told, "everySeconds") or DEFAULT_READINESS.every_s,
        amount(told, "timeoutSeconds") or DEFAULT_READINESS.timeout_s,
        count(told, "failures") or DEFAULT_READINESS.failures,
        amount(told, "withinSeconds") or DEFAULT_READINESS.within_s,
    )


def serve(pod: Json, serving: Serving) -> None:
    """Make a pod, the first of its replica, the one that answers requests."""
    pod["metadata"]["labels"] = {**pod["metadata"]["labels"], SERVES: serving.service}
    containers = pod["spec"]["containers"]
    containers[0] = _serving_container(containers[0], serving)


def _serving_container(told: Spec, serving: Serving) -> Json:
    """The first container, with its port and the probes that it does not set itself."""
    probes: Json = {"readinessProbe": readiness_probe(serving)}
    if told.get("livenessProbe") is None:
        probes["startupProbe"] = startup_probe(serving)
    container = {**probes, **told}
    ports = tables(told, "ports")
    if all(each.get("containerPort") != serving.port for each in ports):
        container["ports"] = [*ports, {"containerPort": serving.port}]
    env = tables(told, "env")
    if all(each.get("name") != "PORT" for each in env):
        container["env"] = [*env, {"name": "PORT", "value": str(serving.port)}]
    return container


def readiness_probe(serving: Serving) -> Json:
    """The probe that says whether a replica is ready."""
    return {**_probe(serving), "failureThreshold": serving.ready.failures}


def startup_probe(serving: Serving) -> Json:
    """The probe that ends a replica which does not become ready in time."""
    probe = _probe(serving)
    tries = ceil(serving.ready.within_s / probe["periodSeconds"])
    return {**probe, "failureThreshold": max(tries, 1)}


def _probe(serving: Serving) -> Json:
    """Whole seconds, at least one: the API has no others."""
    ready = serving.ready
    path, port = ready.http_path, serving.port
    how: Mapping[str, Any] = (
        {"tcpSocket": {"port": port}} if path is None else {"httpGet": {"path": path, "port": port}}
    )
    return {
        **how,
        "periodSeconds": max(round(ready.every_s), 1),
        "timeoutSeconds": max(round(ready.timeout_s), 1),
    }
