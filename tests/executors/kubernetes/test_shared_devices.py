"""Devices that several claims share by their capacity (consumable capacity)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.formats.policy.reader import PRESETS
from support.devices import API, NIC, DeviceStage, nic, request
from support.kubernetes.samples import consumer
from support.kubernetes.server.statuses import Json


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    policy = replace(PRESETS["gantree"], min_run_s=0.0, evictions_per_day=None)
    with DeviceStage(tmp_path, policy) as stage:
        stage.nodes("n0", gpus=0)
        stage.classes(nic=NIC)
        yield stage


def shared(number: int, Gbps: str = "10", **policy: Any) -> Json:
    """A network card of which each claim gets a part of the bandwidth."""
    bandwidth: Json = {"value": Gbps, **({"requestPolicy": policy} if policy else {})}
    made = nic(number)
    made["attributes"]["index"] = {"int": number}
    return {**made, "allowMultipleAllocations": True, "capacity": {"bandwidth": bandwidth}}


STEPS: Json = {"default": "2", "validRange": {"min": "2", "max": "8", "step": "2"}}


def part(Gbps: str, name: str = "nic") -> Json:
    """A request for a part of a card."""
    return request(name, "nic", capacity={"requests": {"bandwidth": Gbps}})


def results(stage: DeviceStage, pod: str) -> list[tuple[str, str]]:
    """The devices of a pod, and how much of their bandwidth it has."""
    return [
        (each["device"], each["consumedCapacity"]["bandwidth"])
        for claim in stage.claims().values()
        if pod in [user["name"] for user in claim["status"].get("reservedFor") or ()]
        for each in claim["status"]["allocation"]["devices"]["results"]
    ]


def message(stage: DeviceStage, name: str) -> str:
    """What the condition says that a pod is not bound for."""
    conditions = stage.pods()[name]["status"].get("conditions", ())
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def test_claims_share_a_device_as_far_as_its_capacity_goes(stage: DeviceStage) -> None:
    stage.slice("n0", NIC, [shared(0, **STEPS)])
    stage.template("four", part("4"))
    stage.start()
    for name in ("p0", "p1", "p2"):
        stage.claimant(name, "four")
    stage.until(lambda: sum(map(stage.bound, ("p0", "p1", "p2"))) == 2)
    (waits,) = [name for name in ("p0", "p1", "p2") if not stage.bound(name)]
    stage.until(lambda: "needs 1 claims(nic)" in message(stage, waits))
    bound = [name for name in ("p0", "p1", "p2") if name != waits]
    assert [results(stage, name) for name in bound] == [[("nic-0", "4")], [("nic-0", "4")]]
    shares = [
        result["shareID"]
        for claim in stage.claims().values()
        for result in (claim["status"].get("allocation") or {"devices": {"results": []}})[
            "devices"
        ]["results"]
    ]
    assert len(set(shares)) == 2
    stage.exit(bound[0])
    stage.until(lambda: stage.bound(waits))


@pytest.mark.parametrize(
    ("asked", "policy", "had"),
    [
        ("3", STEPS, "4"),
        ("1", STEPS, "2"),
        (None, STEPS, "2"),
        (None, {}, "10"),
        ("3", {}, "3"),
        ("3", {"default": "1", "validValues": ["1", "4", "8"]}, "4"),
        ("500m", {"default": "500m", "validRange": {"min": "500m"}}, "500m"),
    ],
)
def test_what_is_asked_is_rounded_up_as_the_device_says(
    stage: DeviceStage, asked: str | None, policy: Json, had: str
) -> None:
    stage.slice("n0", NIC, [shared(0, **policy)])
    stage.template("some", part(asked) if asked else request("nic", "nic"))
    stage.start()
    stage.claimant("p0", "some")
    stage.until(lambda: stage.bound("p0"))
    assert results(stage, "p0") == [("nic-0", had)]


def test_more_than_a_device_gives_to_one_claim_is_told(stage: DeviceStage) -> None:
    stage.slice("n0", NIC, [shared(0, **STEPS)])
    stage.template("much", part("9"))
    stage.start()
    stage.claimant("p0", "much")
    stage.until(lambda: "no device of any node is as request 'nic' asks" in message(stage, "p0"))


def test_requests_of_a_claim_share_a_device_unless_they_are_to_be_distinct(
    stage: DeviceStage,
) -> None:
    stage.slice("n0", NIC, [shared(0, **STEPS), shared(1, **STEPS)])
    two = part("4", "a"), part("4", "b")
    stage.template("together", *two)
    by_index = {"requests": [], "distinctAttribute": f"{NIC}/index"}
    stage.template("apart", *two, constraints=[by_index])
    stage.start()
    stage.claimant("p0", "together")
    stage.until(lambda: stage.bound("p0"))
    assert results(stage, "p0") == [("nic-0", "4"), ("nic-0", "4")]
    stage.exit("p0")
    stage.claimant("p1", "apart")
    stage.until(lambda: stage.bound("p1"))
    assert sorted(results(stage, "p1")) == [("nic-0", "4"), ("nic-1", "4")]


def test_an_expression_may_ask_whether_a_device_is_shared(stage: DeviceStage) -> None:
    stage.slice("n0", NIC, [nic(1), shared(0, **STEPS)])
    for name, is_shared in (("shared", "true"), ("alone", "false")):
        expression = f"device.allowMultipleAllocations == {is_shared}"
        stage.template(name, request("nic", "nic", selectors=[expression]))
    stage.start()
    for name in ("shared", "alone"):
        stage.claimant(name, name)
    stage.until(lambda: stage.bound("shared", "alone"))
    assert [device for _, _, device in stage.devices_of("shared")] == ["nic-0"]
    assert [device for _, _, device in stage.devices_of("alone")] == ["nic-1"]


def test_what_others_have_of_a_device_and_what_was_given_before_a_restart_counts(
    stage: DeviceStage,
) -> None:
    stage.slice("n0", NIC, [shared(0, **STEPS)])
    stage.template("four", part("4"))
    stage.claim("theirs", part("4"))
    pod = stage.pod("theirs", spec={"schedulerName": "other", "nodeName": "n0"})
    told = {"request": "nic", "driver": NIC, "pool": "n0", "device": "nic-0"}
    share = {
        "shareID": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "consumedCapacity": {"bandwidth": "4"},
    }
    status = {
        "allocation": {"devices": {"results": [{**told, **share}]}},
        "reservedFor": [consumer(pod)],
    }
    path = f"{API}/namespaces/default/resourceclaims/theirs/status"
    assert stage.api.patch(path, {"status": status}).status_code == 200
    stage.start()
    stage.claimant("p0", "four")
    stage.until(lambda: stage.bound("p0"))
    stage.stop()
    stage.start()
    stage.claimant("p1", "four")
    stage.until(lambda: "needs 1 claims(nic)" in message(stage, "p1"))
    stage.exit("p0")
    stage.until(lambda: stage.bound("p1"))


def test_a_part_of_a_device_changes_hands(stage: DeviceStage) -> None:
    stage.slice("n0", NIC, [shared(0, **STEPS)])
    stage.template("four", part("4"))
    stage.template("six", part("6"))
    stage.start()
    for name in ("low0", "low1"):
        stage.claimant(name, "four", labels={"gantree.io/priority": "research"})
    stage.until(lambda: stage.phase("low0") == stage.phase("low1") == "Running")
    stage.claimant("high", "six", labels={"gantree.io/priority": "production"})
    stage.until(lambda: stage.phase("high") == "Running")
    assert len(stage.pods().keys() & {"low0", "low1"}) == 1


def test_shares_that_are_written_at_the_same_time_never_exceed_a_device(stage: DeviceStage) -> None:
    """The record of a node has the shares of a device: who comes second reads what the first has taken."""
    stage.slice("n0", NIC, [shared(0, "100", default="1")])
    stage.template("one", part("1"))
    stage.start()
    names = [f"p{number}" for number in range(12)]
    for _ in range(2):
        for name in names:
            stage.claimant(name, "one")
        stage.until(lambda: stage.bound(*names))
        for name in names:
            stage.exit(name)
        stage.until(lambda: stage.held() == [])
        for name in names:
            stage.api.delete(f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
        stage.until(lambda: not stage.claims())
