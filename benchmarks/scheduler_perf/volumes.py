"""Pods with a volume of their own: a persistent volume and a claim that are bound to each other already."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from scheduler_perf.templates import rendered

Json = dict[str, Any]
Send = Callable[..., Awaitable[Json]]
VOLUMES = "/api/v1/persistentvolumes"
BOUND = {"pv.kubernetes.io/bind-completed": "true"}


async def with_volume(
    send: Send, pod: Json, templates: tuple[Path, Path], namespace: str, number: int
) -> Json:
    """The pod with a volume and a claim of these templates, which are created. number is the pod's in its operation."""
    volume, claim = rendered(templates[0]), rendered(templates[1])
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    name = f"{namespace}-vol-{number}"
    claim["metadata"] = {"name": f"pvc-{number}", "annotations": BOUND}
    claim["spec"]["volumeName"] = name
    made = await send("POST", claims, claim)
    meta = made["metadata"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": meta["name"]}
    volume["metadata"] = {"name": name, "annotations": BOUND}
    volume["spec"]["claimRef"] = {**reference, "uid": meta["uid"]}
    if "csi" in volume["spec"]:
        volume["spec"]["csi"]["volumeHandle"] = name
    kept = await send("POST", VOLUMES, volume)
    await send("PUT", f"{VOLUMES}/{name}/status", {**kept, "status": {"phase": "Bound"}})
    status = {"phase": "Bound", "capacity": volume["spec"]["capacity"]}
    await send("PUT", f"{claims}/{meta['name']}/status", {**made, "status": status})
    source = {"name": "vol", "persistentVolumeClaim": {"claimName": meta["name"]}}
    pod["spec"]["volumes"] = [*pod["spec"].get("volumes", ()), source]
    return pod
