"""Records of device allocations, written to a ConfigMap by compare and swap before a claim is allocated.

The server lets two schedulers allocate the same device, and a leader that was cut off may write for a while longer.
Both must write this record first, from the version that they read. Of two who want a device the second is told that it
has changed, reads again, and finds the first one's claim there. If that claim has the device, the second gives up. If
it has none (its writer died in between, or is about to write), the claim is changed by an annotation, so that a write
that rests on what was read before is refused; then the device is free. Records name the last claim that had a device
and are never tidied: they are as large as their nodes have devices. Of a device that is shared they list the last
claims with their shares; those that have none any more are dropped once there seems to be no room.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from gantree.executors.kubernetes.apiserver.client import MERGE, ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.device_objects import CLAIMS, ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import Metadata, Object
from gantree.executors.kubernetes.devices.device import Counters, Device
from gantree.model.errors import Unreachable

PREFIX = "gantree-devices."
DATA = "devices.json"
FENCED = "gantree.io/device-wanted-by"
TRIES = 8
AGAIN_S = 0.1
_LONGEST_NAME = 253
_LOCKS: WeakKeyDictionary[Client, dict[str, asyncio.Lock]] = WeakKeyDictionary()
"""By record, of each client."""


class Holder(Object, frozen=True):
    """The claim that was given a device last, or a share of it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    share: dict[str, float] = msgspec.field(default_factory=dict)


Holders = dict[str, Holder | list[Holder]]
"""By device; a list for one that is shared."""


class DeviceRecord(Object, frozen=True):
    """The ConfigMap of a node, or of a pool of devices that several nodes reach."""

    metadata: Metadata
    data: dict[str, str] = msgspec.field(default_factory=dict)


RECORDS: Resource[DeviceRecord] = Resource("api/v1/configmaps", DeviceRecord)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A device, the claim that is to have it, and the share of it."""

    device: Device
    claim: ResourceClaim
    share: Counters = ()

    def fits(self, others: Sequence[Holder]) -> bool:
        """Whether it is free, or what is left beside others suffices."""
        if not self.device.is_shared:
            return not others
        shares = dict(self.share)
        return all(
            shares[each.name] + sum(other.share.get(each.name, 0.0) for other in others)
            <= each.value
            for each in self.device.capacity
        )


async def record(client: Client, home: str, wanted: Sequence[Wanted]) -> str:
    """Record the claims of these devices; return "" once it is written, else the error. home: a namespace."""
    of_home: dict[str, list[Wanted]] = {}
    for each in wanted:
        of_home.setdefault(each.device.home, []).append(each)
    told = await asyncio.gather(
        *(_record(client, home, where, each) for where, each in of_home.items())
    )
    return next((why for why in told if why), "")


async def _record(client: Client, home: str, where: str, wanted: Sequence[Wanted]) -> str:
    """One after the other here, so that only another process makes a write fail."""
    async with _LOCKS.setdefault(client, {}).setdefault(where, asyncio.Lock()):
        return await _insist(client, home, where, wanted)


async def _insist(client: Client, home: str, where: str, wanted: Sequence[Wanted]) -> str:
    trouble = ""
    for _ in range(TRIES):
        try:
            return await _swap(client, home, where, wanted)
        except ApiError as error:
            if error.status not in (404, 409, 429) and error.status < 500:
                return str(error)
            trouble = str(error)
        except Unreachable as error:
            trouble = str(error)
        await asyncio.sleep(AGAIN_S)
    return trouble


async def _swap(client: Client, home: str, where: str, wanted: Sequence[Wanted]) -> str:
    """Read a record, look whether devices are free by it, and write it. Raises ApiError (409: anew), Unreachable."""
    name = name_of(where)
    old = await _read(client, home, name)
    holders: Holders = {} if old is None else holders_in(old)
    for each in wanted:
        others = await _others(client, holders, each)
        if not each.fits(others):
            has_it = f"{others[0].namespace}/{others[0].name} has device {_text(each.device)}"
            return f"claim {has_it}"
        own = _holder(each)
        holders[_text(each.device)] = [*others, own] if each.device.is_shared else own
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": home,
            **({} if old is None else {"resourceVersion": old.metadata.resource_version}),
        },
        "data": {DATA: msgspec.json.encode(holders).decode()},
    }
    if old is None:
        await client.write("POST", RECORDS.of_namespace(home), body)
    else:
        await client.write("PUT", RECORDS.of_object(home, name), body)
    return ""


async def _read(client: Client, home: str, name: str) -> DeviceRecord | None:
    try:
        return await client.get(RECORDS.of_object(home, name), DeviceRecord)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def _others(client: Client, holders: Holders, wanted: Wanted) -> list[Holder]:
    """Other claims on record for a device; without those that have lost it, if they are in the way. Raises ApiError,
    Unreachable.
    """
    found = holders.get(_text(wanted.device), [])
    listed = found if isinstance(found, list) else [found]
    others = [each for each in listed if each.uid != wanted.claim.metadata.uid]
    if wanted.fits(others):
        return others
    return [each for each in others if await _has_it(client, each, wanted)]


async def _has_it(client: Client, holder: Holder, wanted: Wanted) -> bool:
    """Whether a claim on record has the device; if it has none yet, it cannot get it by what was read before. Raises
    ApiError, Unreachable.
    """
    path = CLAIMS.of_object(holder.namespace, holder.name)
    try:
        claim = await client.get(path, ResourceClaim)
        if claim.metadata.uid == holder.uid and claim.status.allocation is None:
            claim = await _fenced(client, path, claim, wanted)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    has_it = any((r.driver, r.pool, r.device) == wanted.device.key for r in results)
    return claim.metadata.uid == holder.uid and has_it


async def _fenced(client: Client, path: str, claim: ResourceClaim, wanted: Wanted) -> ResourceClaim:
    """A claim as it is after a change of it: what was to be written by what was read before is refused."""
    told = {
        "resourceVersion": claim.metadata.resource_version,
        "annotations": {FENCED: wanted.claim.metadata.uid},
    }
    await client.write("PATCH", path, {"metadata": told}, MERGE)
    return await client.get(path, ResourceClaim)


def name_of(where: str) -> str:
    """Return the name of the record of a node or pool; a digest for pools, and for names that are too long."""
    if "/" not in where and len(PREFIX + where) <= _LONGEST_NAME:
        return PREFIX + where
    return PREFIX + hashlib.sha256(where.encode()).hexdigest()


def holders_in(record: DeviceRecord) -> Holders:
    """Return the last claims of each device; none for an invalid record."""
    try:
        return msgspec.json.decode(record.data.get(DATA, "{}"), type=Holders)
    except msgspec.DecodeError:
        return {}


def _holder(wanted: Wanted) -> Holder:
    meta = wanted.claim.metadata
    return Holder(meta.namespace, meta.name, meta.uid, dict(wanted.share))


def _text(device: Device) -> str:
    return "/".join(device.key)
