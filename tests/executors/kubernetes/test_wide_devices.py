"""Devices that several nodes reach: slices for all nodes, for nodes of some labels, and of devices that say it each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.formats.policy.reader import PRESETS
from support.devices import NIC, DeviceStage, device, request
from support.kubernetes.server.statuses import Json


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    """Two racks of two nodes."""
    policy = replace(PRESETS["gantree"], min_run_s=0.0, evictions_per_day=None)
    with DeviceStage(tmp_path, policy) as stage:
        for rack in ("a", "b"):
            stage.nodes(f"{rack}[0-1]", gpus=0, example_com__rack=rack)
        stage.classes(box=NIC)
        stage.template("one", request("box", "box"))
        yield stage


def pool(stage: DeviceStage, name: str, *devices: Json, **where: Any) -> None:
    """A pool of devices that are reached over the network."""
    told = {"pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, "nodeName": None}
    told |= where
    stage.slice(name, NIC, list(devices), **told)


def in_rack(rack: str) -> Json:
    """A selector of the nodes of a rack."""
    term = {"key": "example.com/rack", "operator": "In", "values": [rack]}
    return {"nodeSelectorTerms": [{"matchExpressions": [term]}]}


def selector(stage: DeviceStage, pod: str) -> object:
    """The nodes on which the allocation of a pod's claim can be used."""
    (found,) = [
        claim["status"]["allocation"].get("nodeSelector")
        for claim in stage.claims().values()
        if pod in [user["name"] for user in claim["status"].get("reservedFor") or ()]
    ]
    return found


def message(stage: DeviceStage, name: str) -> str:
    """What the condition says that a pod is not bound for."""
    conditions = stage.pods()[name]["status"].get("conditions", ())
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def test_a_device_of_all_nodes_has_one_user_wherever_that_is(stage: DeviceStage) -> None:
    pool(stage, "boxes", device("box-0"), device("box-1"), allNodes=True)
    stage.start()
    names = ("p0", "p1", "p2")
    for name, node in zip(names, ("a0", "a1", "b0"), strict=True):
        stage.claimant(name, "one", spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    stage.until(lambda: sum(map(stage.bound, names)) == 2)
    (waits,) = [name for name in names if not stage.bound(name)]
    bound = [name for name in names if name != waits]
    assert {each[2] for name in bound for each in stage.devices_of(name)} == {"box-0", "box-1"}
    assert selector(stage, bound[0]) is None
    stage.until(lambda: "claims(box)" in message(stage, waits))
    stage.exit(bound[0])
    stage.until(lambda: stage.bound(waits))


def test_a_pod_goes_to_a_node_that_reaches_the_device_of_its_claim(stage: DeviceStage) -> None:
    pool(stage, "boxes-of-b", device("box-0"), nodeSelector=in_rack("b"))
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: stage.bound("p0"))
    assert stage.node_of("p0") in ("b0", "b1")
    assert selector(stage, "p0") == in_rack("b")


def test_pods_that_share_a_claim_are_on_all_nodes_that_reach_its_device(stage: DeviceStage) -> None:
    pool(stage, "boxes-of-b", device("box-0"), nodeSelector=in_rack("b"))
    stage.claim("shared", request("box", "box"))
    stage.start()
    whole = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "90"}}}]}
    for name in ("p0", "p1", "p2"):
        stage.claimant(name, claims=["shared"], spec=whole)
    stage.until(lambda: sum(map(stage.bound, ("p0", "p1", "p2"))) == 2)
    assert {stage.node_of(name) for name in ("p0", "p1", "p2")} == {"", "b0", "b1"}


def test_devices_of_one_slice_are_where_each_says(stage: DeviceStage) -> None:
    """The one of a node is bound to that, the other one is not; both draw on one counter."""
    uses = [{"counterSet": "power", "counters": {"watts": {"value": "1"}}}]
    told = {"name": "boxes", "generation": 1, "resourceSliceCount": 2}
    power = [{"name": "power", "counters": {"watts": {"value": "1"}}}]
    pool(stage, "power", sharedCounters=power, allNodes=True, pool=told)
    near = {**device("near"), "nodeName": "a0", "consumesCounters": uses}
    far = {**device("far"), "nodeSelector": in_rack("b"), "consumesCounters": uses}
    pool(stage, "devices", near, far, perDeviceNodeSelection=True, pool=told)
    stage.start()
    stage.claimant("p0", "one", spec={"nodeSelector": {"kubernetes.io/hostname": "a0"}})
    stage.until(lambda: stage.bound("p0"))
    assert [each[2] for each in stage.devices_of("p0")] == ["near"]
    stage.claimant("p1", "one")
    stage.until(lambda: "claims(box)" in message(stage, "p1"))
    stage.exit("p0")
    stage.until(lambda: stage.bound("p1"))


def test_a_node_that_comes_or_gets_another_label_reaches_devices_too(stage: DeviceStage) -> None:
    pool(stage, "boxes-of-c", device("box-0"), nodeSelector=in_rack("c"))
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: "no device of any node" in message(stage, "p0"))
    stage.nodes("c0", gpus=0, example_com__rack="c")
    stage.until(lambda: stage.bound("p0"))
    assert stage.node_of("p0") == "c0"


def test_a_device_of_several_nodes_changes_hands(stage: DeviceStage) -> None:
    pool(stage, "boxes", device("box-0"), allNodes=True)
    stage.start()
    stage.claimant("low", "one", labels={"gantree.io/priority": "research"})
    stage.until(lambda: stage.phase("low") == "Running")
    elsewhere = {
        "nodeSelector": {"example.com/rack": "b" if stage.node_of("low")[0] == "a" else "a"}
    }
    stage.claimant("high", "one", labels={"gantree.io/priority": "production"}, spec=elsewhere)
    stage.until(lambda: stage.phase("high") == "Running")
    assert "low" not in stage.pods()
