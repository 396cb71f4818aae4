"""Writes allocations of claims: those of a whole gang or none, each device by one writer.

The server takes any allocation, of devices that are not there or that others have too. So before a claim is written,
its devices are written into the record of their node or pool (`device_records`), by compare and swap; then the
finalizer, so that the control plane takes the allocation back when the pod has ended; then allocation and consumer in
one write that rests on the version that was read. Pods are bound after that. What was written for a gang that is not
bound is taken back, and what could not be taken back is a stray, which `allocator` finds.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

from gantree.executors.kubernetes.apiserver.client import MERGE, ApiError, Client
from gantree.executors.kubernetes.apiserver.device_objects import CLAIMS, DeviceClass, ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import read_object
from gantree.executors.kubernetes.devices.allocation import DeviceResult, shares_of
from gantree.executors.kubernetes.devices.binding_conditions import is_awaited, until_ready
from gantree.executors.kubernetes.devices.claim_index import NAME_FIELD
from gantree.executors.kubernetes.devices.device_records import FENCED, Wanted, record
from gantree.executors.kubernetes.devices.extended_resources import NewClaim, is_special
from gantree.executors.kubernetes.devices.special_claims import made_claim, tell_pod, untell_pod
from gantree.model.errors import Unreachable

FINALIZER = "resource.kubernetes.io/delete-protection"
AGAIN_S = 0.3
GIVE_UP_S = 20.0
"""After so long a write that the server has neither taken nor refused counts as failed."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A claim as it was read, the pod that is to use it, on which node; allocation None: it has one already.

    devices are what it takes; admin access takes nothing. made: it is for extended resources, and may have to be made.
    """

    claim: ResourceClaim
    pod: str
    pod_name: str
    node: str
    allocation: dict[str, Any] | None = None
    devices: tuple[DeviceResult, ...] = ()
    made: NewClaim | None = None

    @property
    def path(self) -> str:
        """Where the claim is."""
        return path_of(self.claim)

    @property
    def is_awaited(self) -> bool:
        """Whether its devices have to be made ready before the pod is bound."""
        return is_awaited(self.claim) or any(each.device.conditions for each in self.devices)


def path_of(claim: ResourceClaim) -> str:
    """Where a claim is, below the server."""
    return CLAIMS.of_object(claim.metadata.namespace, claim.metadata.name)


def allocation_of(
    claim: ResourceClaim,
    chosen: Iterable[DeviceResult],
    node: str,
    classes: Mapping[str, DeviceClass],
) -> dict[str, Any]:
    """An allocation as the API has it: devices, their drivers' configuration, and the node."""
    devices = list(chosen)
    results = []
    for number, each in enumerate(devices):
        driver, pool, device = each.device.key
        told: dict[str, Any] = {
            "request": each.request.name,
            "driver": driver,
            "pool": pool,
            "device": device,
        }
        if each.request.is_admin:
            told["adminAccess"] = True
        if each.device.is_shared:
            told["shareID"] = str(uuid5(NAMESPACE_OID, f"{claim.metadata.uid}/{number}"))
            told["consumedCapacity"] = {name: _quantity(amount) for name, amount in each.share}
        if each.device.conditions:
            told["bindingConditions"] = list(each.device.conditions)
            told["bindingFailureConditions"] = list(each.device.failure_conditions)
        if each.request.selector.tolerations:
            told["tolerations"] = [
                {name: value for name, value in _toleration(t).items() if value}
                for t in each.request.selector.tolerations
            ]
        results.append(told)
    config = [*_of_classes(devices, classes), *_of_claim(claim, devices)]
    term = _term(devices, node)
    return {
        "devices": {"results": results, **({"config": config} if config else {})},
        **({"nodeSelector": {"nodeSelectorTerms": [term]}} if term else {}),
    }


def _term(results: Iterable[DeviceResult], node: str) -> dict[str, Any]:
    """Where all devices can be used: on their node, else on those that every one of them selects; {} for everywhere."""
    devices = [each.device for each in results]
    if any(device.node or device.binds_to_node for device in devices):
        return {"matchFields": [{"key": NAME_FIELD, "operator": "In", "values": [node]}]}
    terms = [t for d in devices if d.selector for t in d.selector.node_selector_terms]
    told = {
        "matchExpressions": dict.fromkeys(
            each for term in terms for each in term.match_expressions
        ),
        "matchFields": dict.fromkeys(each for term in terms for each in term.match_fields),
    }
    return {field: msgspec.to_builtins([*found]) for field, found in told.items() if found}


def _quantity(amount: float) -> str:
    """An amount as the API has it."""
    return str(int(amount)) if amount == int(amount) else f"{round(amount * 1000)}m"


def _toleration(told: Any) -> dict[str, str]:
    return {
        "key": told.key,
        "operator": told.operator,
        "value": told.value,
        "effect": told.effect,
    }


def _of_classes(
    results: Sequence[DeviceResult], classes: Mapping[str, DeviceClass]
) -> Iterable[dict[str, Any]]:
    for name, class_name in dict.fromkeys(
        (each.request.name, each.request.class_name) for each in results
    ):
        found = classes.get(class_name)
        for each in found.spec.config if found else ():
            yield {"source": "FromClass", "requests": [name], **each}


def _of_claim(claim: ResourceClaim, results: Sequence[DeviceResult]) -> Iterable[dict[str, Any]]:
    names = {each.request.name for each in results}
    names |= {name.partition("/")[0] for name in names}
    for each in claim.spec.devices.config:
        requests = each.get("requests") or []
        if not requests or names & set(requests):
            yield {"source": "FromClaim", **each}


async def grant_all(client: Client, grants: Sequence[Grant], home: str) -> str:
    """Write all grants of a gang; "" once all are, else why not, and then none is. home: where records are kept."""
    there = await asyncio.gather(*(_with_claim(client, each) for each in grants))
    missing = next((each for each in there if isinstance(each, str)), "")
    if missing:
        return missing
    grants = [each for each in there if isinstance(each, Grant)]
    wanted = [each for grant in grants for each in _wanted(grant)]
    why = await record(client, home, wanted)
    if why:
        return why
    told = await asyncio.gather(*(_grant(client, each) for each in grants))
    why = next((each for each in told if each), "")
    if not why:
        waiting = (until_ready(client, each.path) for each in grants if each.is_awaited)
        why = next((each for each in await asyncio.gather(*waiting) if each), "")
    if why:
        await take_back_all(client, grants)
    return why


async def _with_claim(client: Client, grant: Grant) -> Grant | str:
    """A grant of a claim that is there; else why it is not."""
    if grant.made is None:
        return grant
    claim = await made_claim(client, grant.made)
    return claim if isinstance(claim, str) else replace(grant, claim=claim)


def _wanted(grant: Grant) -> Iterator[Wanted]:
    """The devices of a grant, each once."""
    of_key = {each.device.key: each.device for each in grant.devices}
    for key, share in shares_of(grant.devices).items():
        yield Wanted(of_key[key], grant.claim, share)


async def take_back_all(client: Client, grants: Iterable[Grant]) -> None:
    """Nothing of these grants is to stay; what cannot be written now is found as a stray later."""
    await asyncio.gather(*(take_back(client, each.claim, each.pod) for each in grants))


async def _grant(client: Client, grant: Grant) -> str:
    """Write one grant; "" once it is written, else why it is not."""
    why = await _allocate(client, grant)
    if why or grant.made is None:
        return why
    return await tell_pod(client, grant.made, grant.pod_name)


async def _allocate(client: Client, grant: Grant) -> str:
    claim, deadline = grant.claim, asyncio.get_running_loop().time() + GIVE_UP_S
    while True:
        why = _unfit(grant, claim)
        if why or _is_written(grant, claim):
            return why
        try:
            await _write(client, grant, claim)
            return ""
        except ApiError as error:
            if error.status < 500 and error.status not in (409, 429):
                return str(error)
            trouble = str(error)
        except Unreachable as error:
            trouble = str(error)
        if asyncio.get_running_loop().time() >= deadline:
            return trouble
        await asyncio.sleep(AGAIN_S)
        try:
            claim = await client.get(grant.path, ResourceClaim)
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and error.status == 404:
                return str(error)


async def _write(client: Client, grant: Grant, claim: ResourceClaim) -> None:
    """The finalizer, then allocation and consumer. Raises ApiError, Unreachable."""
    version = claim.metadata.resource_version
    if FINALIZER not in claim.metadata.finalizers:
        finalizers = [*claim.metadata.finalizers, FINALIZER]
        body = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
        version = version_in(await client.write("PATCH", grant.path, body, MERGE))
    consumer = {"resource": "pods", "name": grant.pod_name, "uid": grant.pod}
    status: dict[str, Any] = {"reservedFor": [*_consumers(claim), consumer]}
    if grant.allocation is not None:
        status["allocation"] = grant.allocation
    body = {"metadata": {"resourceVersion": version}, "status": status}
    await client.write("PATCH", f"{grant.path}/status", body, MERGE)


async def take_back(client: Client, claim: ResourceClaim, pod: str) -> str:
    """Remove a pod from a claim, and the allocation if it was the only user; return "" or the error."""
    path, trouble = path_of(claim), ""
    deadline = asyncio.get_running_loop().time() + GIVE_UP_S
    while asyncio.get_running_loop().time() < deadline:
        try:
            now = await client.get(path, ResourceClaim)
            if now.metadata.uid != claim.metadata.uid:
                return ""
            consumer = next((e.name for e in now.status.reserved_for if e.uid == pod), "")
            await _clear(client, path, now, pod)
            return await untell_pod(client, now, consumer) if consumer and is_special(now) else ""
        except ApiError as error:
            if error.status == 404:
                return ""
            trouble = str(error)
        except Unreachable as error:
            trouble = str(error)
        await asyncio.sleep(AGAIN_S)
    return trouble


async def _clear(client: Client, path: str, claim: ResourceClaim, pod: str) -> None:
    """Take a pod off a claim; with the last one go allocation and finalizer. Raises ApiError, Unreachable."""
    left = [each for each in _consumers(claim) if each["uid"] != pod]
    version = claim.metadata.resource_version
    if len(left) != len(claim.status.reserved_for):
        status: dict[str, Any] = {"reservedFor": left or None}
        if not left:
            status |= {"allocation": None, **({"devices": None} if claim.status.devices else {})}
        body: dict[str, Any] = {"metadata": {"resourceVersion": version}, "status": status}
        version = version_in(await client.write("PATCH", f"{path}/status", body, MERGE))
    elif claim.status.allocation is not None:
        return  # it was never this pod's
    if not left and FINALIZER in claim.metadata.finalizers:
        rest = [each for each in claim.metadata.finalizers if each != FINALIZER]
        body = {"metadata": {"resourceVersion": version, "finalizers": rest or None}}
        await client.write("PATCH", path, body, MERGE)


def _unfit(grant: Grant, claim: ResourceClaim) -> str:
    """Why a claim as it is now cannot be granted; "" if it can."""
    name = claim.metadata.name
    if claim.metadata.uid != grant.claim.metadata.uid or claim.metadata.deletion_timestamp:
        return f"claim {name!r} is gone"
    fences = {each.metadata.annotations.get(FENCED) for each in (claim, grant.claim)}
    if len(fences) > 1:
        return f"another claim has got the devices that claim {name!r} was to have"
    has_own = any(each.uid == grant.pod for each in claim.status.reserved_for)
    if grant.allocation is None:
        return "" if claim.status.allocation is not None else f"claim {name!r} was given back"
    if claim.status.allocation is not None and not has_own:
        return f"somebody else has allocated claim {name!r}"
    return ""


def _is_written(grant: Grant, claim: ResourceClaim) -> bool:
    """Return whether a claim is allocated for the pod already, by a write whose answer was lost."""
    is_allocated = claim.status.allocation is not None
    return is_allocated and any(each.uid == grant.pod for each in claim.status.reserved_for)


def _consumers(claim: ResourceClaim) -> list[dict[str, str]]:
    return [
        {
            "resource": each.resource,
            "name": each.name,
            "uid": each.uid,
            **({"apiGroup": each.api_group} if each.api_group else {}),
        }
        for each in claim.status.reserved_for
    ]


def version_in(answer: bytes) -> str:
    """The version of an object that the server has answered with."""
    return read_object(answer, msgspec.json.Decoder(ResourceClaim)).metadata.resource_version
