"""Two who allocate from the same pool: of those who write the record of a node first, only one gets a device."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.client import Client
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.device_objects import CLAIMS, ResourceClaim
from gantree.executors.kubernetes.devices.allocation import DeviceResult
from gantree.executors.kubernetes.devices.claim_writes import (
    FINALIZER,
    Grant,
    _grant,
    grant_all,
    take_back,
)
from gantree.executors.kubernetes.devices.claims import DeviceRequest, DeviceSelector
from gantree.executors.kubernetes.devices.device import Capacity, Counters, Device
from gantree.executors.kubernetes.devices.device_records import Wanted, record
from gantree.executors.kubernetes.pods.device_rules import Facts
from support.devices import API
from support.kubernetes.samples import allocation, claim, pod
from support.kubernetes.server.statuses import Json
from support.kubernetes.server.thread import Api, ServerThread

T = TypeVar("T")
DRIVER = "gpu.example.com"
DEVICE = Device((DRIVER, "node-0", "gpu-0"), Facts(DRIVER), "node-0")
PATH = f"{API}/namespaces/default/resourceclaims"


def given(device: Device, share: Counters = ()) -> DeviceResult:
    """A device for the only request of a claim."""
    return DeviceResult(0, DeviceRequest("gpu", "gpu", DeviceSelector(())), device, share)


@pytest.fixture
def running() -> Iterator[ServerThread]:
    with ServerThread() as running:
        yield running


class Stage:
    """A server with two claims and a pod for each; two schedulers that do not know each other."""

    def __init__(self, running: ServerThread, api: Api) -> None:
        self.running, self.api = running, api
        self.pods: dict[str, Json] = {}
        for name in ("a", "b"):
            assert api.post(PATH, claim(name)).status_code == 201
            self.pods[name] = api.post("/api/v1/namespaces/default/pods", pod(name)).json()

    async def grant(self, client: Client, name: str) -> Grant:
        """Device gpu-0 of node-0 for a claim, as somebody reads it now."""
        read = await client.get(CLAIMS.of_object("default", name), ResourceClaim)
        uid = self.pods[name]["metadata"]["uid"]
        return Grant(read, uid, name, "node-0", allocation("gpu-0"), (given(DEVICE),))

    def do(self, work: Callable[[Client, Client], Awaitable[T]]) -> T:
        async def run() -> T:
            one, other = Client(Connection(self.running.url)), Client(Connection(self.running.url))
            try:
                return await work(one, other)
            finally:
                await one.close()
                await other.close()

        return asyncio.run(run())

    def status(self, name: str) -> Json:
        told: Json = self.api.get(f"{PATH}/{name}").json()
        return told


@pytest.fixture
def stage(running: ServerThread) -> Iterator[Stage]:
    with Api(running.url) as api:
        yield Stage(running, api)


def test_of_two_who_grant_a_device_at_once_one_does(stage: Stage) -> None:
    async def both(one: Client, other: Client) -> list[str]:
        first, second = await stage.grant(one, "a"), await stage.grant(other, "b")
        told = asyncio.gather(
            grant_all(one, [first], "default"), grant_all(other, [second], "default")
        )
        return list(await told)

    told = stage.do(both)
    assert sorted(why == "" for why in told) == [False, True]
    held = [name for name in ("a", "b") if stage.status(name)["status"].get("allocation")]
    assert held == ["a" if told[0] == "" else "b"]
    loser = stage.status("b" if held == ["a"] else "a")
    assert FINALIZER not in (loser["metadata"].get("finalizers") or ())


def test_who_stopped_between_record_and_claim_does_not_keep_others_out_nor_write_later(
    stage: Stage,
) -> None:
    """Its claim was read before another had the device: what it writes by that is refused."""

    async def cut_off(one: Client, other: Client) -> tuple[str, str]:
        late = await stage.grant(one, "a")
        faults = stage.running.server.faults
        fault = {"verb": "patch", "resource": "resourceclaims", "code": 403}
        stage.running.call(lambda: faults.add(**fault))
        assert "403" in await grant_all(one, [late], "default")
        why = await grant_all(other, [await stage.grant(other, "b")], "default")
        return why, await grant_all(one, [late], "default")

    first, second = stage.do(cut_off)
    assert first == ""
    assert second == "claim default/b has device gpu.example.com/node-0/gpu-0"
    assert stage.status("a")["status"].get("allocation") is None


def test_who_wakes_up_behind_its_record_writes_no_claim_any_more(stage: Stage) -> None:
    """It wrote the record, and stood still; meanwhile another one took the device."""

    async def late(one: Client, other: Client) -> tuple[str, str]:
        grant = await stage.grant(one, "a")
        assert await record(one, "default", [Wanted(DEVICE, grant.claim)]) == ""
        why = await grant_all(other, [await stage.grant(other, "b")], "default")
        return why, await _grant(one, grant)

    first, second = stage.do(late)
    assert first == ""
    assert second == "another claim has got the devices that claim 'a' was to have"
    assert not stage.status("a")["status"].get("allocation")


def test_an_answer_that_was_lost_is_looked_up_and_what_is_taken_back_leaves_nothing(
    stage: Stage,
) -> None:
    async def granted(one: Client, _: Client) -> tuple[str, Json, str]:
        faults = stage.running.server.faults
        lost = {"verb": "patch", "resource": "resourceclaims/status", "is_lost": True}
        stage.running.call(lambda: faults.add(**lost))
        grant = await stage.grant(one, "a")
        why = await grant_all(one, [grant], "default")
        made = stage.status("a")
        return why, made, await take_back(one, grant.claim, grant.pod)

    why, made, trouble = stage.do(granted)
    assert (why, trouble) == ("", "")
    assert made["status"]["reservedFor"][0]["name"] == "a"
    assert made["metadata"]["finalizers"] == [FINALIZER]
    left = stage.status("a")
    assert not left["status"].get("allocation")
    assert not left["status"].get("reservedFor")
    assert not left["metadata"].get("finalizers")


def test_where_one_claim_of_a_gang_is_refused_all_are_taken_back(stage: Stage) -> None:
    async def gang(one: Client, _: Client) -> str:
        faults = stage.running.server.faults
        no = {"resource": "resourceclaims/status", "name": "b", "code": 422}
        stage.running.call(lambda: faults.add(**no))
        a, b = await stage.grant(one, "a"), await stage.grant(one, "b")
        other = Grant(
            b.claim,
            b.pod,
            b.pod_name,
            b.node,
            allocation("gpu-1"),
            (given(replace(DEVICE, key=(DRIVER, "node-0", "gpu-1"))),),
        )
        return await grant_all(one, [a, other], "default")

    assert "422" in stage.do(gang)
    for name in ("a", "b"):
        left = stage.status(name)
        assert not left["status"].get("allocation")
        assert not left["metadata"].get("finalizers")


def test_shares_of_a_device_are_on_record_until_there_seems_to_be_no_room(stage: Stage) -> None:
    """A third share fits once it shows that a claim on record has none any more."""
    facts = replace(DEVICE.facts, is_shared=True)
    shared = replace(DEVICE, facts=facts, capacity=(Capacity("memory", 4.0),))

    async def shares(one: Client, other: Client) -> list[str]:
        half: Counters = (("memory", 2.0),)
        a, b = await stage.grant(one, "a"), await stage.grant(other, "b")
        third = msgspec.structs.replace(
            b.claim, metadata=msgspec.structs.replace(b.claim.metadata, name="c", uid="uid-of-c")
        )
        wanted = [Wanted(shared, each, half) for each in (a.claim, b.claim, third)]
        told = [
            await record(one, "default", wanted[:1]),
            await record(other, "default", wanted[1:2]),
        ]
        for grant in (a, b):
            assert await _grant(one, grant) == ""
        full = await record(one, "default", wanted[2:])
        await take_back(one, a.claim, a.pod)
        return [*told, full, await record(other, "default", wanted[2:])]

    first, second, full, later = stage.do(shares)
    assert (first, second, later) == ("", "", "")
    assert full == "claim default/a has device gpu.example.com/node-0/gpu-0"
