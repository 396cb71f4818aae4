"""Extended resources: each pod goes where its resources are, by plugin or claim, and they are counted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.writes import pod_status
from gantree.model.phases import Phase
from support.devices import GPU, NIC, DeviceStage, gpu, request
from support.kubernetes.server.statuses import Json


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    with DeviceStage(tmp_path) as stage:
        stage.classes(gpu=GPU, nic=NIC)
        stage.template("one", request("gpus", "gpu"))
        yield stage


def bound(stage: DeviceStage, prefix: str) -> dict[str, str]:
    """The nodes of the pods that are bound and whose names begin so."""
    pods = stage.pods().items()
    nodes = {name: pod["spec"].get("nodeName") for name, pod in pods if name.startswith(prefix)}
    return {name: node for name, node in nodes.items() if node}


def phases(stage: DeviceStage) -> list[Phase]:
    return [state.phase for state in stage.controller.ledger.jobs.values()]


def waits(stage: DeviceStage, name: str) -> str:
    """What the condition PodScheduled of a pod says."""
    conditions: list[Json] = stage.pods()[name]["status"].get("conditions") or []
    return next((str(each["message"]) for each in conditions if each["status"] == "False"), "")


def asking(limits: dict[str, str]) -> Json:
    """The containers of a pod that asks for extended resources."""
    return {"containers": [{"name": "main", "image": "train", "resources": {"limits": limits}}]}


def test_pods_by_device_plugin_and_by_claim_each_go_to_the_nodes_that_serve_them(
    stage: DeviceStage,
) -> None:
    stage.nodes("plugin[0-1]", gpus=4)
    stage.claimed_nodes("dra0", "dra1", gpus=4)
    stage.start()
    for number in range(9):
        stage.pod(f"p{number}", gpus=1)
        stage.claimant(f"c{number}", "one")
    stage.until(lambda: phases(stage).count(Phase.RUNNING) == 16)
    stage.until(lambda: phases(stage).count(Phase.PENDING) == 2)
    assert sorted(bound(stage, "p").values()) == ["plugin0"] * 4 + ["plugin1"] * 4
    assert sorted(bound(stage, "c").values()) == ["dra0"] * 4 + ["dra1"] * 4


def test_a_pod_by_device_plugin_is_told_that_no_node_has_the_resource(stage: DeviceStage) -> None:
    stage.claimed_nodes("dra0", gpus=4)
    stage.start()
    stage.pod("p0", gpus=1)
    stage.until(lambda: "nvidia.com/gpu" in waits(stage, "p0"))
    assert not bound(stage, "p0")


def test_a_claim_is_told_that_no_node_publishes_devices(stage: DeviceStage) -> None:
    stage.nodes("plugin0", gpus=8)
    stage.claimed_nodes("dra0", gpus=1)
    stage.start()
    stage.claimant("c0", "one")
    stage.until(lambda: stage.bound("c0"))
    stage.claimant("c1", "one")
    why = "needs 1 GPU; 0 of the 8 free GPUs are in machines with enough claims(GPU)"
    stage.until(lambda: why in waits(stage, "c1"))


def test_gpus_of_a_node_that_a_plugin_and_slices_list_are_counted_once(stage: DeviceStage) -> None:
    """Both list the same hardware: four GPUs are four, whoever asks for them."""
    stage.nodes("both", gpus=4)
    stage.slice("both", GPU, [gpu(number) for number in range(4)])
    stage.start()
    for number in range(3):
        stage.pod(f"p{number}", gpus=1)
        stage.claimant(f"c{number}", "one")
    stage.until(lambda: phases(stage).count(Phase.RUNNING) == 4)
    stage.until(lambda: phases(stage).count(Phase.PENDING) == 2)


def test_a_plugin_that_allocates_fewer_gpus_than_there_are_is_heeded(stage: DeviceStage) -> None:
    stage.nodes("n0", gpus=4)
    stage.allocatable("n0", {"nvidia.com/gpu": "3"})
    stage.start()
    for number in range(4):
        stage.pod(f"p{number}", gpus=1)
    stage.until(lambda: phases(stage).count(Phase.RUNNING) == 3)
    stage.until(lambda: phases(stage).count(Phase.PENDING) == 1)


def test_gpus_of_another_vendor_are_another_resource(stage: DeviceStage) -> None:
    stage.nodes("n0", gpus=4)
    stage.start()
    stage.pod("p0", spec=asking({"amd.com/gpu": "1"}))
    stage.pod("p1", spec=asking({"nvidia.com/gpu": "1"}))
    stage.until(lambda: stage.bound("p1"))
    stage.until(lambda: phases(stage).count(Phase.PENDING) == 1)
    assert not bound(stage, "p0")


def test_mig_instances_are_counted_by_what_the_node_offers(stage: DeviceStage) -> None:
    """Two instances for four pods; the other node has whole GPUs, which gantree does not cut."""
    stage.nodes("n[0-1]", gpus=8)
    stage.allocatable("n0", {"nvidia.com/gpu": "7", "nvidia.com/mig-1g.10gb": "2"})
    stage.start()
    for number in range(4):
        stage.pod(f"p{number}", spec=asking({"nvidia.com/mig-1g.10gb": "1"}))
    stage.pod("other", spec=asking({"nvidia.com/mig-3g.40gb": "1"}))
    stage.until(lambda: phases(stage).count(Phase.RUNNING) == 2)
    stage.until(lambda: phases(stage).count(Phase.PENDING) == 3)
    assert list(bound(stage, "p").values()) == ["n0", "n0"]
    assert not bound(stage, "other")


def test_a_pod_may_have_several_mig_instances_and_whole_gpus(stage: DeviceStage) -> None:
    stage.nodes("n0", gpus=8)
    offered = {"nvidia.com/gpu": "7", "nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-2g.20gb": "1"}
    stage.allocatable("n0", offered)
    stage.start()
    stage.pod("p0", spec=asking({**offered, "nvidia.com/mig-1g.10gb": "2"}))
    stage.until(lambda: stage.bound("p0"))
    stage.pod("p1", spec=asking({"nvidia.com/mig-1g.10gb": "1"}))
    stage.until(lambda: stage.bound("p1"))
    stage.pod("p2", spec=asking({"nvidia.com/mig-1g.10gb": "1"}))
    stage.until(lambda: "nvidia.com/mig-1g.10gb" in waits(stage, "p2"))


def test_mig_instances_that_a_plugin_calls_gpus_are_given_as_such(stage: DeviceStage) -> None:
    """The strategy `single`: the product label says so, and which part of a GPU they are is the site's business."""
    stage.nodes("n0", gpus=3, product="NVIDIA-H100-80GB-HBM3-MIG-2g.20gb")
    stage.start()
    for number in range(4):
        stage.pod(f"p{number}", gpus=1)
    stage.until(lambda: phases(stage).count(Phase.RUNNING) == 3)
    stage.until(lambda: phases(stage).count(Phase.PENDING) == 1)


def test_a_node_whose_plugin_loses_a_gpu_in_use_is_read_again_when_that_gang_ends(
    stage: DeviceStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gang goes on with eight, and nothing is rebuilt meanwhile; the next gang of eight does not get that node."""
    monkeypatch.setattr(pod_status, "EVERY_S", 0.2)
    stage.nodes("n0", gpus=8)
    stage.start()
    stage.pod("p0", gpus=8)
    stage.until(lambda: phases(stage) == [Phase.RUNNING])
    cluster: Any = stage.controller.cluster
    before = cluster._nodes.site
    stage.allocatable("n0", {"nvidia.com/gpu": "7"})
    stage.until(lambda: cluster._nodes.site is not before)
    rebuilt = cluster._nodes.site
    stage.work_for(1.0)
    assert cluster._nodes.site is rebuilt
    stage.pod("p1", gpus=8)
    stage.until(lambda: "8 GPUs" in waits(stage, "p1"))
    stage.exit("p0")
    stage.until(lambda: "8 nvidia.com/gpu" in waits(stage, "p1"))
    stage.pod("p2", gpus=7)
    stage.until(lambda: stage.bound("p2"))
