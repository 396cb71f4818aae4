"""Nodes that are not ours are not given out, and on nodes whose GPUs are in trouble nothing new starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.apiserver.objects import Condition, Metadata, Node, NodeStatus
from gantree.executors.kubernetes.nodes.node_health import what_is_wrong, why_cordoned
from gantree.model.phases import Phase
from support.pods import PodStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path / "a") as stage:
        yield stage


def second(stage: PodStage, path: Path) -> PodStage:
    """Another gantree on the same server, of the other pool."""
    other = PodStage(path)
    other.running, other.api, other.kubelet = stage.running, stage.api, stage.kubelet
    other.start(scheduler="gantree-b", node_selector="pool=b")
    return other


def test_two_gantrees_share_a_cluster_by_its_pools(stage: PodStage, tmp_path: Path) -> None:
    stage.nodes("a[0-1]", pool="a")
    stage.nodes("b[0-1]", pool="b")
    stage.start(node_selector="pool=a")
    other = second(stage, tmp_path / "b")
    for number in range(3):
        stage.pod(f"a-{number}", gpus=8)
        stage.pod(f"b-{number}", gpus=8, spec={"schedulerName": "gantree-b"})

    def both() -> bool:
        other.controller.step()
        return all(stage.bound(f"{pool}-{n}") for pool in "ab" for n in range(2))

    stage.until(both)
    nodes = {name: pod["spec"].get("nodeName", "") for name, pod in stage.pods().items()}
    assert sorted(nodes[f"a-{number}"] for number in range(3)) == ["", "a0", "a1"]
    assert sorted(nodes[f"b-{number}"] for number in range(3)) == ["", "b0", "b1"]
    stage.nodes("a2", pool="a")
    stage.until(lambda: bool(both()) and stage.bound("a-0", "a-1", "a-2"))
    assert not other.bound("b-0", "b-1", "b-2")
    other.stop()


def condition(stage: PodStage, node: str, kind: str, status: str) -> None:
    conditions = [
        {"type": kind, "status": status, "reason": "Xid79", "message": "fell off the bus"}
    ]
    body = {"status": {"conditions": conditions}}
    media_type = "application/strategic-merge-patch+json"
    answer = stage.api.patch(f"/api/v1/nodes/{node}/status", body, media_type)
    assert answer.status_code == 200, answer.text


def test_a_node_with_a_broken_gpu_takes_nothing_new_until_it_is_mended(stage: PodStage) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    stage.pod("p0", gpus=4)
    stage.until(lambda: stage.phase("p0") == "Running")
    node = stage.node_of("p0")
    condition(stage, node, "GpuXid", "True")
    cordoned = stage.controller.ledger.site.cordoned
    stage.until(lambda: node in cordoned)
    assert cordoned[node].reason == "GpuXid (Xid79: fell off the bus)"
    stage.pod("p1", gpus=4)
    stage.pod("p2", gpus=8)
    stage.until(lambda: stage.bound("p1"))
    assert stage.node_of("p1") != node
    assert stage.phase("p0") == "Running"
    condition(stage, node, "GpuXid", "False")
    stage.exit("p0")
    stage.until(lambda: stage.bound("p2"))
    assert next(iter(stage.controller.ledger.jobs.values())).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("kind", "status", "is_wrong"),
    [
        ("Ready", "False", False),  # another story: such a node is lost
        ("MemoryPressure", "True", True),
        ("DiskPressure", "False", False),
        ("KernelDeadlock", "True", True),
        ("FrequentKubeletRestart", "True", False),
        ("XIDErrors", "True", True),
        ("NVLinkStatusInactive", "True", True),
        ("AcceleratedHardwareReady", "False", True),
        ("AcceleratedHardwareReady", "True", False),
        ("AcceleratedHardwareReady", "Unknown", False),
        ("IBLinkFlapping", "True", True),
        # NVSentinel's
        ("GpuNvlinkWatch", "True", True),
        ("GpuPcieWatch", "True", True),
        ("GpuMemWatch", "False", False),
        ("SysLogsXIDError", "True", True),
        ("SysLogsSXIDError", "True", True),
        ("InfiniBandStateCheck", "True", True),
        ("InfiniBandDegradationCheck", "True", True),
        ("EthernetStateCheck", "True", True),
        ("EthernetDegradationCheck", "False", False),
        ("EFAStateCheck", "True", True),
    ],
)
def test_which_conditions_keep_new_work_off(kind: str, status: str, is_wrong: bool) -> None:
    told = NodeStatus(conditions=(Condition(kind, status),))
    node = Node(Metadata("n0"), status=told)
    is_short = why_cordoned(node) is not None
    assert (is_short or bool(what_is_wrong(node, ""))) == is_wrong
    assert is_short == (kind == "MemoryPressure")


def cordon(stage: PodStage, node: str, *, is_on: bool = True) -> None:
    """As `kubectl cordon` and the control plane's taint."""
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}] if is_on else []
    body = {"spec": {"unschedulable": is_on or None, "taints": taints}}
    answer = stage.api.patch(f"/api/v1/nodes/{node}", body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("toleration", [{"key": "node.kubernetes.io/unschedulable"}, {}])
def test_a_pod_that_tolerates_cordons_goes_onto_a_cordoned_node(
    stage: PodStage, toleration: dict[str, str]
) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    cordon(stage, "n0")
    stage.until(lambda: "n0" in stage.controller.ledger.site.cordoned)
    tolerant = {"tolerations": [{**toleration, "operator": "Exists"}]}
    stage.pod("first", gpus=8)
    stage.until(lambda: stage.bound("first"))
    stage.pod("tolerant", gpus=8, spec=tolerant)
    stage.until(lambda: stage.bound("tolerant"))
    assert (stage.node_of("first"), stage.node_of("tolerant")) == ("n1", "n0")
    assert not stage.controller.ledger.site.cordoned
    stage.nodes("n2")
    cordon(stage, "n2")
    stage.pod("second", gpus=8)
    stage.exit("tolerant")
    stage.work_for(0.5)
    assert not stage.bound("second"), "n0 and n2 are cordoned"
    cordon(stage, "n2", is_on=False)
    stage.until(lambda: stage.bound("second"))
    assert stage.node_of("second") == "n2"


def test_cordons_are_tolerated_after_a_restart_too(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    cordon(stage, "n0")
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    stage.pod("one", gpus=8, spec=tolerant)
    stage.pod("two", gpus=8, spec=tolerant)
    stage.until(lambda: stage.bound("one") or stage.bound("two"))
    last = "two" if stage.bound("one") else "one"
    stage.kill()
    stage.exit("one" if last == "two" else "two")
    stage.start()
    stage.until(lambda: stage.bound(last))
