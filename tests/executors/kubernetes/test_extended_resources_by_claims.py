"""Extended resources that a device class backs: on nodes without a device plugin for them, a pod gets a claim."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.formats.policy.reader import PRESETS
from support.devices import GPU, NIC, DeviceStage, nic, request
from support.kubernetes.server.statuses import Json

CARD = "example.com/card"
SPECIAL = "resource.kubernetes.io/extended-resource-claim"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    policy = replace(PRESETS["gantree"], min_run_s=0.0, evictions_per_day=None, grace_s=1.0)
    with DeviceStage(tmp_path, policy) as stage:
        driver = f'device.driver == "{NIC}"'
        stage.device_class("card", driver, extendedResourceName=CARD)
        yield stage


def asks(resources: Json, name: str = "main") -> Json:
    """A container that asks for so much."""
    told = {"cpu": "1", "memory": "1Gi", **resources}
    return {"name": name, "image": "i", "resources": {"requests": told, "limits": told}}


def user(stage: DeviceStage, name: str, resources: Json, priority: str = "batch") -> Json:
    labels = {"gantree.io/priority": priority}
    return stage.pod(name, labels=labels, spec={"containers": [asks(resources)]})


def cards(stage: DeviceStage, node: str, count: int) -> None:
    """A node whose cards no device plugin offers."""
    stage.nodes(node, gpus=0)
    stage.slice(node, NIC, [nic(number) for number in range(count)])


def message(stage: DeviceStage, name: str) -> str:
    """What the condition says that a pod is not bound for."""
    conditions = stage.pods()[name]["status"].get("conditions", ())
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


@pytest.mark.parametrize("resource", [CARD, "deviceclass.resource.kubernetes.io/card"])
def test_a_claim_is_made_for_a_resource_that_a_class_backs(
    stage: DeviceStage, resource: str
) -> None:
    cards(stage, "n0", 2)
    stage.start()
    names = ("p0", "p1", "p2")
    for name in names:
        user(stage, name, {resource: "1"})
    stage.until(lambda: sum(stage.phase(name) == "Running" for name in names) == 2)
    (waits,) = [name for name in names if not stage.bound(name)]
    stage.until(lambda: f"needs 1 {resource}" in message(stage, waits))
    bound = [name for name in names if name != waits]
    assert {device for name in bound for _, _, device in stage.devices_of(name)} == {
        "nic-0",
        "nic-1",
    }
    pod = stage.pods()[bound[0]]
    told = pod["status"]["extendedResourceClaimStatus"]
    claim = stage.claims()[told["resourceClaimName"]]
    (asked,) = claim["spec"]["devices"]["requests"]
    mapping = {"containerName": "main", "resourceName": resource, "requestName": asked["name"]}
    assert told["requestMappings"] == [mapping]
    assert claim["metadata"]["annotations"][SPECIAL] == "true"
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (pod["metadata"]["uid"], True)
    stage.exit(bound[0])
    stage.until(lambda: stage.bound(waits))


def test_resources_of_classes_that_select_the_same_devices_are_counted_together(
    stage: DeviceStage,
) -> None:
    """No pod is sent to a node whose devices others of the same moment have: none of them starts twice."""
    driver = f'device.driver == "{NIC}"'
    for number in range(4):
        stage.device_class(f"other{number}", driver, extendedResourceName=f"example.com/o{number}")
    for node in ("n0", "n1", "n2"):
        cards(stage, node, 4)
    names = [f"p{number}" for number in range(12)]
    for number, name in enumerate(names):
        user(stage, name, {f"example.com/o{number % 4}": "1"})
    stage.start()
    stage.until(lambda: all(stage.phase(name) == "Running" for name in names))
    attempts = [
        pod["metadata"]["annotations"]["gantree.io/attempt"] for pod in stage.pods().values()
    ]
    assert attempts == ["1"] * 12


def test_a_node_with_a_device_plugin_gives_the_resource_out_itself(stage: DeviceStage) -> None:
    cards(stage, "n0", 1)
    stage.nodes("n1", gpus=0)
    stage.allocatable("n1", {"cpu": "96", "memory": "1024Gi", "pods": "110", CARD: "1"})
    stage.start()
    names = ("p0", "p1", "p2")
    for name in names:
        user(stage, name, {CARD: "1"})
    stage.until(lambda: sum(stage.phase(name) == "Running" for name in names) == 2)
    bound = {stage.node_of(name): name for name in names if stage.bound(name)}
    assert set(bound) == {"n0", "n1"}
    statuses = {node: stage.pods()[name]["status"] for node, name in bound.items()}
    assert "extendedResourceClaimStatus" in statuses["n0"]
    assert "extendedResourceClaimStatus" not in statuses["n1"]
    assert len(stage.held()) == 1


def test_gpus_by_a_class_are_the_gpus_of_the_placement(stage: DeviceStage) -> None:
    stage.device_class("gpu", f'device.driver == "{GPU}"', extendedResourceName="nvidia.com/gpu")
    stage.claimed_nodes("n0", gpus=4)
    stage.template("one", request("gpu", "gpu"))
    stage.start()
    stage.claimant("claimant", "one")
    stage.pod("plain", gpus=2)
    stage.until(lambda: stage.phase("claimant") == stage.phase("plain") == "Running")
    stage.pod("more", gpus=2)
    stage.until(lambda: message(stage, "more") != "")
    annotations = stage.pods()["plain"]["metadata"]["annotations"]
    had = sorted(device for _, _, device in stage.devices_of("plain"))
    assert had == [f"gpu-{gpu}" for gpu in annotations["gantree.io/gpus"].split(",")]
    stage.exit("claimant")
    stage.until(lambda: stage.phase("more") == "Running")
    assert len(stage.held()) == len(set(stage.held())) == 4


def test_a_class_that_comes_later_and_goes_again(stage: DeviceStage) -> None:
    cards(stage, "n0", 2)
    stage.start()
    user(stage, "p0", {"example.com/other": "1"})
    stage.until(lambda: "example.com/other" in message(stage, "p0"))
    driver = f'device.driver == "{NIC}"'
    stage.device_class("other", driver, extendedResourceName="example.com/other")
    stage.until(lambda: stage.phase("p0") == "Running")
    stage.api.delete("/apis/resource.k8s.io/v1/deviceclasses/other")
    user(stage, "p1", {"example.com/other": "1"})
    stage.until(lambda: "example.com/other" in message(stage, "p1"))
    assert not stage.bound("p1")


def test_containers_have_requests_of_their_own_and_init_containers_use_them(
    stage: DeviceStage,
) -> None:
    cards(stage, "n0", 4)
    stage.start()
    inits = [asks({CARD: "2"}, "first"), asks({CARD: "3"}, "second")]
    inits.append({**asks({CARD: "1"}, "sidecar"), "restartPolicy": "Always"})
    containers = [asks({CARD: "1"}, "main"), asks({}, "other")]
    stage.pod("p0", spec={"initContainers": inits, "containers": containers})
    stage.until(lambda: stage.phase("p0") == "Running")
    (claim,) = stage.claims().values()
    asked = {e["name"]: e["exactly"]["count"] for e in claim["spec"]["devices"]["requests"]}
    second, sidecar, main = (f"container-{n}-request-1" for n in (1, 2, 3))
    assert asked == {second: 1, sidecar: 1, main: 1}
    told = stage.pods()["p0"]["status"]["extendedResourceClaimStatus"]["requestMappings"]
    found = {(each["containerName"], each["requestName"]) for each in told}
    assert found == {
        ("sidecar", sidecar), ("main", main), ("first", sidecar), ("first", main),
        ("second", sidecar), ("second", main), ("second", second),
    }  # fmt: skip


def test_a_resource_by_a_class_changes_hands(stage: DeviceStage) -> None:
    cards(stage, "n0", 2)
    stage.start()
    user(stage, "low", {CARD: "2"}, "research")
    stage.until(lambda: stage.phase("low") == "Running")
    user(stage, "high", {CARD: "1"}, "production")
    stage.until(lambda: stage.phase("high") == "Running")
    assert "low" not in stage.pods()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("create", "resourceclaims"), ("patch", "resourceclaims/status"), ("patch", "pods/status"),
        ("create", "pods/binding"),
    ],
)  # fmt: skip
def test_it_is_killed_at_any_write_and_the_pod_has_one_claim(
    stage: DeviceStage, verb: str, resource: str
) -> None:
    cards(stage, "n0", 2)
    stage.start()
    faults = stage.running.server.faults
    told = {"verb": verb, "resource": resource, "is_lost": True}
    fault = stage.running.call(lambda: faults.add(**told))
    user(stage, "p0", {CARD: "1"})
    stage.until(lambda: fault.met > 0)
    stage.kill()
    stage.start()
    stage.until(lambda: stage.phase("p0") == "Running")
    assert len(stage.claims()) == len(stage.held()) == 1
    user(stage, "p1", {CARD: "1"})
    stage.until(lambda: stage.phase("p1") == "Running")
    assert len(set(stage.held())) == 2
