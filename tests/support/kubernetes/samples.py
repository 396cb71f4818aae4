"""Objects as tests write them: the smallest that a server takes, and those that were observed."""

from typing import Any

from support.kubernetes.server.statuses import Json

DRIVER = "gpu.example.com"


def pod(name: str, metadata: Json | None = None, **spec: Any) -> Json:
    """A pod of one container. metadata is beside its name."""
    containers = [{"name": "main", "image": "registry/train:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"containers": containers, "restartPolicy": "Never", **spec},
    }


def node(name: str, labels: Json | None = None, **capacity: str) -> Json:
    """A node that is ready."""
    status = {"capacity": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "status": status,
    }


def binding(pod_name: str, node_name: str, **metadata: Any) -> Json:
    """A Binding. metadata: uid as a guard, annotations and labels for the pod."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod_name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }


def claim(name: str, count: int = 1) -> Json:
    """A ResourceClaim of v1 for some devices, by a request that is called gpus."""
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }


def result(device: str, pool: str = "node-0", request: str = "gpus") -> Json:
    """One device of an allocation."""
    return {"request": request, "driver": DRIVER, "pool": pool, "device": device}


def allocation(*devices: str) -> Json:
    """An allocation of devices of node-0."""
    return {"devices": {"results": [result(each) for each in devices]}}


def consumer(made: Json) -> Json:
    """An entry of reservedFor for a pod as the server told it."""
    metadata = made["metadata"]
    return {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}


def pod_group(name: str, min_count: int = 4, **spec: Any) -> Json:
    """A PodGroup of v1alpha2 that asks for all of its pods at once."""
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}, **spec},
    }


def definition(
    group: str, kind: str, plural: str, schema: Json | None = None, version: str = "v1", **more: Any
) -> Json:
    """A CustomResourceDefinition with a status, of one version. Without a schema it takes anything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema or anything},
        "subresources": {"status": {}},
        **more,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }
