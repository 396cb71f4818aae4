"""Devices by claims (DRA): every pod gets the exact devices that its claims ask for, and gives them back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.controllers import claim_controller as claim_desk
from gantree.executors.kubernetes.writes.pod_status import wait_reason
from gantree.model.phases import Phase
from support.devices import API, GPU, NIC, DeviceStage, gpu, nic, request
from support.kubernetes.samples import consumer
from support.kubernetes.server.statuses import Json
from support.pods import PodStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    with DeviceStage(tmp_path) as stage:
        stage.classes(gpu=GPU, nic=NIC)
        yield stage


def phases(stage: PodStage) -> list[Phase]:
    return [state.phase for state in stage.controller.ledger.jobs.values()]


def test_a_pod_gets_the_gpu_of_its_claim_and_gives_it_back(stage: DeviceStage) -> None:
    stage.claimed_nodes("n0", gpus=2)
    stage.template("one", request("gpus", "gpu"))
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: stage.phase("p0") == "Running")
    ((driver, pool, device),) = stage.devices_of("p0")
    assert (driver, pool) == (GPU, "n0")
    at = stage.pods()["p0"]["metadata"]["annotations"]["gantree.io/gpus"]
    assert device == f"gpu-{at}"
    (claim,) = stage.claims().values()
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    stage.exit("p0")
    stage.until(lambda: phases(stage) == [Phase.SUCCEEDED] and stage.held() == [])


def test_a_gang_gets_the_devices_of_all_its_members_each_once(stage: DeviceStage) -> None:
    stage.claimed_nodes("n0", "n1", gpus=4)
    stage.template("four", request("gpus", "gpu", 4))
    stage.start()
    gang = {"annotations": {"gantree.io/gang-size": "2"}, "labels": {"gantree.io/gang": "g"}}
    stage.claimant("g-0", "four", **gang)
    stage.claimant("g-1", "four", **gang)
    stage.until(lambda: phases(stage) == [Phase.RUNNING])
    assert {stage.node_of("g-0"), stage.node_of("g-1")} == {"n0", "n1"}
    assert len(stage.held()) == len(set(stage.held())) == 8
    stage.claimant("late", "four")
    stage.until(lambda: Phase.PENDING in phases(stage))
    for name in ("g-0", "g-1"):
        stage.exit(name)
    stage.until(lambda: stage.phase("late") == "Running")


def test_a_gpu_and_a_nic_are_on_one_pcie_root(stage: DeviceStage) -> None:
    """On n0 only root 0 has a NIC that is free; the GPU that the core would take first is at another one."""
    stage.nodes("n0", gpus=0)
    stage.slice("n0", GPU, [gpu(n, f"pci0000:{n:02x}") for n in range(4)])
    stage.slice("n0", NIC, [nic(n, f"pci0000:{n:02x}") for n in (2, 3)])
    same = {"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    stage.template("pair", request("gpu", "gpu"), request("nic", "nic"), constraints=[same])
    stage.start()
    for name in ("p0", "p1", "p2"):
        stage.claimant(name, "pair")
    stage.until(lambda: sum(map(stage.bound, ("p0", "p1", "p2"))) == 2)
    bound = [name for name in ("p0", "p1", "p2") if stage.bound(name)]
    for name in bound:
        devices = {device for _, _, device in stage.devices_of(name)}
        assert devices in ({"gpu-2", "nic-2"}, {"gpu-3", "nic-3"})
    stage.exit(bound[0])
    stage.until(lambda: stage.bound("p0", "p1", "p2"))


def test_an_expression_chooses_among_gpus(stage: DeviceStage) -> None:
    stage.nodes("n0", gpus=0)
    stage.nodes("n1", gpus=0)
    stage.slice("n0", GPU, [gpu(0), gpu(1)])
    stage.slice("n1", GPU, [gpu(0), gpu(1, memory="141Gi")])
    large = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("100Gi")) >= 0'
    sound = 'device.attributes[?"gpu.example.com"].?fault.orValue("none") == "none"'
    stage.template("large", request("gpu", "gpu", selectors=[large, sound]))
    stage.start()
    stage.claimant("p0", "large")
    stage.until(lambda: stage.bound("p0"))
    assert stage.devices_of("p0") == [(GPU, "n1", "gpu-1")]
    stage.claimant("p1", "large")
    stage.until(lambda: "claims(gpu)" in told(stage, "p1"))


def told(stage: DeviceStage, name: str) -> str:
    """What the condition PodScheduled of a pod says, or is to say when it is its gang's turn."""
    ledger = stage.controller.ledger
    for job in ledger.jobs:
        if job.startswith(f"default.{name}.") and (
            reason_to_wait := wait_reason(stage.controller.decided, job, time.time())
        ):
            return reason_to_wait.sentence
    conditions = stage.pods()[name]["status"].get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["status"] == "False"), "")


def test_the_first_of_some_alternatives_that_can_be_had_is_given(stage: DeviceStage) -> None:
    stage.claimed_nodes("n0", gpus=1, nics=1)
    ways = [
        {"name": "two", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    ]
    stage.template("either", {"name": "gpus", "firstAvailable": ways})
    stage.start()
    stage.claimant("p0", "either")
    stage.until(lambda: stage.bound("p0"))
    (claim,) = stage.claims().values()
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["request"], result["device"]) == ("gpus/one", "gpu-0")


def test_all_devices_of_a_class_are_had_together_or_not_at_all(stage: DeviceStage) -> None:
    stage.claimed_nodes("n0", gpus=3)
    stage.template("one", request("gpu", "gpu"))
    every = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
    stage.template("every", every)
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: stage.bound("p0"))
    stage.claimant("p1", "every")
    stage.until(lambda: "claims(all gpu)" in told(stage, "p1"))
    stage.exit("p0")
    stage.until(lambda: stage.bound("p1"))
    assert len(stage.devices_of("p1")) == 3


def test_a_tainted_device_is_for_those_who_put_up_with_it(stage: DeviceStage) -> None:
    stage.nodes("n0", gpus=0)
    taint = {"key": "example.com/sick", "value": "yes", "effect": "NoSchedule"}
    stage.slice("n0", GPU, [{**gpu(0), "taints": [taint]}, gpu(1)])
    stage.template("one", request("gpu", "gpu"))
    bears = {"key": "example.com/sick", "operator": "Exists"}
    stage.template("chosen", request("gpu", "gpu", selectors=[f'device.driver == "{GPU}"']))
    stage.template("tough", request("gpu", "gpu", tolerations=[bears]))
    stage.start()
    stage.claimant("p0", "chosen")
    stage.until(lambda: stage.bound("p0"))
    assert stage.devices_of("p0") == [(GPU, "n0", "gpu-1")]
    for name in ("one", "chosen"):
        stage.claimant(name, name)
    stage.until(lambda: phases(stage).count(Phase.PENDING) == 2)
    stage.claimant("p1", "tough")
    stage.until(lambda: stage.bound("p1"))
    assert stage.devices_of("p1") == [(GPU, "n0", "gpu-0")]
    assert not stage.bound("one")
    assert not stage.bound("chosen")


def test_partitions_share_what_their_gpu_has(stage: DeviceStage) -> None:
    """Two GPUs: two halves of one, then the other as a whole, and then nothing is left but one half."""
    stage.nodes("n0", gpus=0)
    stage.partitioned("n0", gpus=2)
    stage.template("one-whole", request("gpu", "whole"))
    stage.template("one-half", request("gpu", "half"))
    stage.start()
    stage.claimant("h0", "one-half")
    stage.until(lambda: stage.bound("h0"))
    stage.claimant("w0", "one-whole")
    stage.until(lambda: stage.bound("w0"))
    stage.claimant("h1", "one-half")
    stage.until(lambda: stage.bound("h1"))
    stage.claimant("w1", "one-whole")
    stage.until(lambda: "GPU" in told(stage, "w1"))
    of_one = {device[:5] for _, _, device in stage.devices_of("h0") + stage.devices_of("h1")}
    assert len(of_one) == 1
    stage.exit("h0")
    stage.exit("h1")
    stage.until(lambda: stage.bound("w1"))


def test_a_claim_that_no_device_is_like_is_told_and_waits(
    stage: DeviceStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_desk, "PATIENCE_S", 0.3)
    stage.claimed_nodes("n0", gpus=1)
    stage.template("odd", request("gpu", "tpu"))
    stage.template("none", request("gpu", "gpu", selectors=['device.driver == "other"']))
    optional = f'device.attributes["{GPU}"].?type.optMap(t, t == "gpu").orValue(false)'
    stage.template("bad", request("gpu", "gpu", selectors=[optional]))
    stage.start()
    for name in ("odd", "none", "bad", "absent"):
        stage.claimant(name, name)
    why = {
        "odd": "there is no device class 'tpu'",
        "none": "no device of any node is as request 'gpu' asks",
        "bad": "cannot be read as CEL",
        "absent": "no claim was made yet of its template 'absent'",
    }
    stage.until(lambda: all(words in told(stage, name) for name, words in why.items()))
    stage.template("absent", request("gpu", "gpu"))
    stage.pod("another", 0)
    stage.until(lambda: stage.bound("absent"))


def test_a_pod_goes_where_its_claim_is_allocated_already(stage: DeviceStage) -> None:
    stage.claimed_nodes("n0", "n1", "n2", gpus=1)
    stage.claim("shared", request("gpu", "gpu"))
    stage.start()
    stage.claimant("p0", claims=["shared"])
    stage.until(lambda: stage.bound("p0"))
    stage.claimant("p1", claims=["shared"])
    stage.until(lambda: stage.bound("p1"))
    assert stage.node_of("p0") == stage.node_of("p1")
    assert stage.devices_of("p0") == stage.devices_of("p1")
    assert len(stage.held()) == 1


def test_a_pod_goes_where_somebody_has_allocated_its_claim(stage: DeviceStage) -> None:
    """There is a node without GPUs, where a pod that asks for none goes otherwise."""
    node = "n1"
    stage.nodes("c0", gpus=0)
    stage.claimed_nodes("n0", "n1", gpus=4)
    stage.claim("given", request("gpu", "gpu"))
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    there = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    status = {"allocation": {**allocation_of_gpu_0(node), **there}}
    path = f"{API}/namespaces/default/resourceclaims/given/status"
    assert stage.api.patch(path, {"status": status}).status_code == 200
    stage.start()
    stage.claimant("p0", claims=["given"])
    stage.until(lambda: stage.bound("p0"))
    assert stage.node_of("p0") == node
    assert stage.devices_of("p0") == [(GPU, node, "gpu-0")]
    assert stage.pods()["p0"]["metadata"]["annotations"]["gantree.io/attempt"] == "1"


def test_devices_that_others_have_are_not_given_out_and_they_are_told(stage: DeviceStage) -> None:
    stage.claimed_nodes("n0", gpus=2)
    stage.template("one", request("gpu", "gpu"))
    stage.claim("theirs", request("gpu", "gpu"))
    pod = stage.pod("theirs", spec={"schedulerName": "other", "nodeName": "n0"})
    status = {"allocation": allocation_of_gpu_0("n0"), "reservedFor": [consumer(pod)]}
    path = f"{API}/namespaces/default/resourceclaims/theirs/status"
    assert stage.api.patch(path, {"status": status}).status_code == 200
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: stage.bound("p0"))
    assert stage.devices_of("p0") == [(GPU, "n0", "gpu-1")]
    stage.claimant("p1", "one")
    stage.until(lambda: "GPU" in told(stage, "p1"))
    stage.until(lambda: "SharedDevicePool" in reasons(stage))


def reasons(stage: DeviceStage) -> list[str]:
    events = stage.api.get("/api/v1/events").json()["items"]
    return [str(event["reason"]) for event in events]


def test_gpus_of_one_socket_are_those_of_one_numa_node(stage: DeviceStage) -> None:
    """Two of four GPUs are held so that only one socket has two left."""
    stage.claimed_nodes("n0", gpus=8)
    stage.template("three", request("gpu", "gpu", 3))
    stage.template("two", request("gpu", "gpu", 2))
    stage.start()
    stage.claimant("p0", "three")
    stage.until(lambda: stage.bound("p0"))
    inside = {"annotations": {"gantree.io/required-topology": "socket"}}
    stage.claimant("p1", "two", **inside)
    stage.claimant("p2", "two", **inside)
    stage.until(lambda: stage.bound("p1", "p2"))
    for name in ("p0", "p1", "p2"):
        assert len({int(device[-1]) // 4 for _, _, device in stage.devices_of(name)}) == 1


def allocation_of_gpu_0(node: str) -> Json:
    result = {"request": "gpu", "driver": GPU, "pool": node, "device": "gpu-0"}
    return {"devices": {"results": [result]}}


def test_the_example_of_a_pair_gets_a_gpu_and_a_nic_at_one_root_for_each_pod(
    tmp_path: Path,
) -> None:
    root = Path(__file__).parents[3]
    text = (root / "examples/kubernetes/claim-pair.yaml").read_text(encoding="utf-8")
    with DeviceStage(tmp_path) as stage:
        stage.claimed_nodes("n0", gpus=2, nics=2)
        stage.start()
        stage.apply(text)
        stage.until(lambda: stage.phase("pair-0") == stage.phase("pair-1") == "Running")
        for name in ("pair-0", "pair-1"):
            assert len({device.split("-")[1] for _, _, device in stage.devices_of(name)}) == 1
        assert len(set(stage.held())) == 4


@pytest.mark.faults
def test_who_may_not_read_claims_schedules_all_other_pods(tmp_path: Path) -> None:
    with DeviceStage(tmp_path) as stage:
        stage.nodes("n0")
        faults = stage.running.server.faults
        no = {"verb": "list", "resource": "resourceslices", "code": 403, "times": 1}
        stage.running.call(lambda: faults.add(**no))
        stage.start()
        stage.claimant("p0", "one")
        stage.pod("p1", gpus=1)
        stage.until(lambda: stage.bound("p1"))
        assert not stage.bound("p0")
