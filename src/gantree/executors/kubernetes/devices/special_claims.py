"""Writes claims for extended resources: the claim itself, and in the status of its pod which container has what of it.

The kubelet finds the devices of a container by that status, so it is written before the pod is bound, and cleared when
the claim is taken back: the pod may be bound next where a device plugin offers the resource. The claim's name says what
it asks for, so one that was made before, by a write whose answer was lost or before a restart, is used.
"""

import asyncio
from typing import Any

import msgspec

from gantree.executors.kubernetes.apiserver.client import MERGE, ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.device_objects import CLAIMS, ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import Pod, read_object
from gantree.executors.kubernetes.devices.extended_resources import NewClaim
from gantree.model.errors import Unreachable

PODS: Resource[Pod] = Resource("api/v1/pods", Pod)
_DECODER = msgspec.json.Decoder(ResourceClaim)
TRIES = 8
AGAIN_S = 0.3


async def made_claim(client: Client, made: NewClaim) -> ResourceClaim | str:
    """The claim, made if it is not there; else why not."""
    namespace, name = made.key
    trouble = ""
    for _ in range(TRIES):
        try:
            answer = await client.write("POST", CLAIMS.of_namespace(namespace), made.body)
            return read_object(answer, _DECODER)
        except ApiError as error:
            if error.status < 500 and error.status not in (409, 429):
                return str(error)
            trouble = str(error)
        except Unreachable as error:
            trouble = str(error)
        try:
            return await client.get(CLAIMS.of_object(namespace, name), ResourceClaim)
        except (ApiError, Unreachable) as error:
            trouble = trouble or str(error)
        await asyncio.sleep(AGAIN_S)
    return trouble


async def tell_pod(client: Client, made: NewClaim, pod: str) -> str:
    """Write into the status of a pod what its containers have of the claim; return "" or the error."""
    told = {"requestMappings": list(made.mappings), "resourceClaimName": made.key[1]}
    return await _write_status(client, made.key[0], pod, told)


async def untell_pod(client: Client, claim: ResourceClaim, pod: str) -> str:
    """A pod has no devices of the claim any more; return "" or the error."""
    return await _write_status(client, claim.metadata.namespace, pod, None)


async def _write_status(client: Client, namespace: str, pod: str, told: Any) -> str:
    path = f"{PODS.of_object(namespace, pod)}/status"
    body = {"status": {"extendedResourceClaimStatus": told}}
    trouble = ""
    for _ in range(TRIES):
        try:
            await client.write("PATCH", path, body, MERGE)
            return ""
        except ApiError as error:
            if error.status == 404 and told is None:
                return ""
            if error.status < 500 and error.status not in (409, 429):
                return str(error)
            trouble = str(error)
        except Unreachable as error:
            trouble = str(error)
        await asyncio.sleep(AGAIN_S)
    return trouble
