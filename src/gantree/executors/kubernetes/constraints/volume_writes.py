"""Provisions or binds the volumes of a gang's claims before any pod of the gang is bound.

A claim that is to be made gets the node into its annotation `volume.kubernetes.io/selected-node`. A volume that is
there already gets the claim into its `spec.claimRef`, with the annotation `pv.kubernetes.io/bound-by-controller`, as
kube-scheduler writes it. Provisioners and the controller of volumes do the rest, which is waited for.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.client import MERGE, ApiError, Client
from gantree.executors.kubernetes.apiserver.volume_objects import CLAIMS, VOLUMES, Claim, Volume
from gantree.model.errors import Unreachable

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY = "pv.kubernetes.io/bound-by-controller"
MADE_WITHIN_S = 120.0
"""Volumes that are not there after so long are not waited for: the gang gives its room back, and tries again."""
AGAIN_S = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim that is to have a volume for a node: one that is there, by its name, or one that is made ("")."""

    namespace: str
    claim: str
    node: str
    volume: str = ""


async def make(client: Client, wanted: Sequence[Provision]) -> str:
    """Have volumes made for nodes, and wait until they are there; "" once they are, else why not. Never raises.

    Where one cannot be had, claims that have none yet are free to be made for another node again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + MADE_WITHIN_S
    told = await asyncio.gather(*(_begin(client, each) for each in wanted))
    why, missing = next(filter(None, told), ""), list(wanted)
    while missing and not why and loop.time() < deadline:
        found = await asyncio.gather(*(_made(client, each) for each in missing))
        missing = [each for each, (is_made, _) in zip(missing, found, strict=True) if not is_made]
        why = next((trouble for _, trouble in found if trouble), "")
        await asyncio.sleep(AGAIN_S if missing else 0)
    if missing:
        why = why or f"{missing[0].claim!r} was not bound within {MADE_WITHIN_S:g} s"
        await asyncio.gather(*(_take_back(client, each) for each in missing))
    return why


async def _begin(client: Client, wanted: Provision) -> str:
    """Ask for the volume of a claim; "" or why that was not done."""
    return await (_give(client, wanted) if wanted.volume else _select(client, wanted, wanted.node))


async def _take_back(client: Client, wanted: Provision) -> None:
    """As far as nothing has come of it yet."""
    await (_let_go(client, wanted) if wanted.volume else _select(client, wanted, None))


async def _made(client: Client, wanted: Provision) -> tuple[bool, str]:
    """Whether a claim has its volume, and why it will not get one, if that is known."""
    try:
        claim = await client.get(CLAIMS.of_object(wanted.namespace, wanted.claim), Claim)
    except (ApiError, Unreachable) as error:
        return False, str(error)
    if wanted.volume:
        is_other = claim.spec.volume_name not in ("", wanted.volume)
        other = f"the claim {wanted.claim!r} was bound to {claim.spec.volume_name!r} instead"
        return claim.is_bound and not is_other, other if is_other else ""
    if claim.is_bound or claim.metadata.annotations.get(SELECTED_NODE) == wanted.node:
        return claim.is_bound, ""
    return False, f"no volume for the claim {wanted.claim!r} can be made for node {wanted.node}"


async def _select(client: Client, wanted: Provision, node: str | None) -> str:
    """Write the node that a claim is to be made for; None takes it back while there is no volume."""
    path = CLAIMS.of_object(wanted.namespace, wanted.claim)
    try:
        claim = await client.get(path, Claim)
        if claim.is_bound or claim.metadata.annotations.get(SELECTED_NODE) == node:
            return ""
        version = claim.metadata.resource_version
        body = {"metadata": {"resourceVersion": version, "annotations": {SELECTED_NODE: node}}}
        await client.write("PATCH", path, body, MERGE)
    except (ApiError, Unreachable) as error:
        return str(error)
    return ""


async def _give(client: Client, wanted: Provision) -> str:
    """Set the claimRef of a volume, as kube-scheduler does; the volume controller then binds the claim."""
    path = VOLUMES.of_object("", wanted.volume)
    try:
        claim = await client.get(CLAIMS.of_object(wanted.namespace, wanted.claim), Claim)
        volume = await client.get(path, Volume)
        if volume.is_for(claim) and volume.spec.claim_ref and volume.spec.claim_ref.uid:
            return ""
        if volume.spec.claim_ref is not None and not volume.is_for(claim):
            return f"the volume {wanted.volume!r} is for another claim by now"
        await client.write("PATCH", path, _given_to(volume, claim), MERGE)
    except (ApiError, Unreachable) as error:
        return str(error)
    return ""


def _given_to(volume: Volume, claim: Claim) -> dict[str, object]:
    """What is written; that nobody had it for that claim before is told as controllers tell it of themselves."""
    meta = claim.metadata
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    mark = {} if volume.is_for(claim) else {"annotations": {BOUND_BY: "yes"}}
    version = {"resourceVersion": volume.metadata.resource_version}
    return {"metadata": {**version, **mark}, "spec": {"claimRef": ref}}


async def _let_go(client: Client, wanted: Provision) -> None:
    """Free a volume that was given to a claim, unless the claim is bound by now, or it is for it by somebody's word."""
    path = VOLUMES.of_object("", wanted.volume)
    try:
        claim = await client.get(CLAIMS.of_object(wanted.namespace, wanted.claim), Claim)
        volume = await client.get(path, Volume)
        if (
            claim.is_bound
            or not volume.is_for(claim)
            or BOUND_BY not in volume.metadata.annotations
        ):
            return
        version = volume.metadata.resource_version
        told = {"resourceVersion": version, "annotations": {BOUND_BY: None}}
        await client.write("PATCH", path, {"metadata": told, "spec": {"claimRef": None}}, MERGE)
    except (ApiError, Unreachable) as error:
        log.warning("the volume %s stays with %s: %s", wanted.volume, wanted.claim, error)
