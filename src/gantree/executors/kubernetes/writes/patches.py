"""A small patch of one pod, retried for as long as a server may be restarting."""

import asyncio
from collections.abc import Mapping
from typing import Any

from gantree.executors.kubernetes.apiserver.client import MERGE, STRATEGIC, ApiError, Client
from gantree.executors.kubernetes.apiserver.objects import Metadata
from gantree.executors.kubernetes.writes.writes import PODS
from gantree.model.errors import Unreachable

AGAIN_S = 0.5
GIVE_UP_S = 30.0


async def annotate(client: Client, pod: Metadata, annotations: Mapping[str, str]) -> str:
    """Write annotations; as `patch_pod`."""
    return await patch_pod(client, pod, "", {"metadata": {"annotations": dict(annotations)}})


async def nominate(client: Client, pod: Metadata, node: str) -> str:
    """Write the node for which room is being freed, or "" to take it back; as `patch_pod`."""
    return await patch_pod(client, pod, "status", {"status": {"nominatedNodeName": node or None}})


async def add_condition(client: Client, pod: Metadata, condition: Mapping[str, str]) -> str:
    """Write one condition; as `patch_pod`."""
    body = {"status": {"conditions": [dict(condition)]}}
    return await patch_pod(client, pod, "status", body, STRATEGIC)


async def patch_pod(
    client: Client, pod: Metadata, part: str, body: Mapping[str, Any], kind: str = MERGE
) -> str:
    """Change a pod, unless it is another of that name by now; "" once that is done or it is gone, else why not."""
    path = PODS.of_object(pod.namespace, pod.name) + (f"/{part}" if part else "")
    told = {**body, "metadata": {**body.get("metadata", {}), "uid": pod.uid}}
    deadline = asyncio.get_running_loop().time() + GIVE_UP_S
    while True:
        try:
            await client.write("PATCH", path, told, kind)
            return ""
        except ApiError as error:
            if error.status < 500 and error.status != 429:
                return "" if error.status in (404, 409) or _is_another(error) else str(error)
            trouble = str(error)
        except Unreachable as error:
            trouble = str(error)
        if asyncio.get_running_loop().time() >= deadline:
            return trouble
        await asyncio.sleep(AGAIN_S)


def _is_another(error: ApiError) -> bool:
    """Whether the pod has another uid: in a patch that is no guard, but a change of what is immutable."""
    return error.status == 422 and "metadata.uid: " in str(error)
