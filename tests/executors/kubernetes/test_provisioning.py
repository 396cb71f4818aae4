"""Capacity that does not exist yet: a gang that no node can hold is asked for whole, of one node group."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.controllers import provisioning
from gantree.executors.kubernetes.workloads import provisioning_requests
from gantree.executors.kubernetes.workloads.gangs import gang_of
from gantree.executors.kubernetes.workloads.provisioning_requests import (
    Wanted,
    pause_s,
    template_body,
)
from gantree.executors.kubernetes.writes import pod_status
from gantree.formats import read_policy
from gantree.model.node_groups import NodeGroup
from gantree.model.node_rules import Taint
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.provisioning import answer, define, requests, templates

LEAF = "network.topology.nvidia.com/leaf"
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PRODUCT = "NVIDIA-H100-80GB-HBM3"
AMOUNTS = (("cpu", "96"), ("memory", "1024Gi"), ("pods", "110"), ("nvidia.com/gpu", "8"))
A = NodeGroup(
    "h100-a",
    4,
    ATOMIC,
    parameters=(("ValidUntilSeconds", "600"),),
    labels=(("pool", "h100-a"), (LEAF, "new"), ("nvidia.com/gpu.product", PRODUCT)),
    allocatable=AMOUNTS,
)
B = replace(A, name="h100-b", labels=(("pool", "h100-b"), (LEAF, "newer"), *A.labels[2:]))
SMALL = replace(A, name="small", max_nodes=3)
TAINTED = replace(A, name="tainted", taints=(Taint("dedicated", "x"),))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodStage]:
    """One node without GPUs, in another leaf, and the definition of requests."""
    monkeypatch.setattr(provisioning, "EVERY_S", 0.05)
    with PodStage(tmp_path) as stage:
        define(stage)
        stage.nodes("c0", gpus=0, network_topology_nvidia_com__leaf="old")
        yield stage


def gang(
    stage: PodStage, name: str = "g", members: int = 4, required: str = "", queue: str = "default"
) -> None:
    annotations = {
        "gantree.io/gang-size": str(members),
        "gantree.io/required-topology": required,
        "gantree.io/queue": queue,
    }
    labels = {"gantree.io/gang": name}
    for number in range(members):
        stage.pod(f"{name}-{number}", gpus=8, labels=labels, annotations=annotations)


def join(stage: PodStage, names: str) -> None:
    """Nodes of the group come."""
    stage.nodes(names, network_topology_nvidia_com__leaf="new", pool="h100-a")


def said(stage: PodStage, name: str = "g-0") -> str:
    conditions = stage.pods()[name]["status"].get("conditions") or ()
    return next((each["message"] for each in conditions if each["status"] == "False"), "")


def until_asked(stage: PodStage, attempt: int = 1) -> Json:
    stage.until(
        lambda: any(each["metadata"]["name"].endswith(f"-{attempt}") for each in requests(stage))
    )
    return requests(stage)[-1]


def test_a_gang_is_asked_for_whole_and_starts_when_all_its_nodes_are_there(stage: PodStage) -> None:
    stage.start(node_groups=(SMALL, A))
    gang(stage, required="leaf")
    request = until_asked(stage)
    name, spec = request["metadata"]["name"], request["spec"]
    (template,) = templates(stage)
    assert spec["provisioningClassName"] == ATOMIC
    assert spec["parameters"] == {"ValidUntilSeconds": "600"}
    assert spec["podSets"] == [
        {"podTemplateRef": {"name": template["metadata"]["name"]}, "count": 4}
    ]
    pod = template["template"]["spec"]
    assert pod["nodeSelector"] == dict(A.labels)
    assert pod["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "8"
    marks = {
        "autoscaling.x-k8s.io/consume-provisioning-request": name,
        "autoscaling.x-k8s.io/provisioning-class-name": ATOMIC,
    }
    assert all(
        marks.items() <= each["metadata"]["annotations"].items() for each in stage.pods().values()
    )
    asked = f"Waiting: ProvisioningRequest {name} asks node group h100-a for the whole gang"
    stage.until(lambda: said(stage) == f"{asked} (not accepted yet).")
    answer(stage, request, "Accepted")
    stage.until(lambda: said(stage, "g-3") == f"{asked} (accepted).")
    join(stage, "h[0-1]")
    answer(stage, request, "Accepted", "Provisioned")
    stage.until(lambda: said(stage) == f"{asked} (provisioned).")
    stage.work_for(0.5)
    assert not any(stage.bound(f"g-{number}") for number in range(4))
    join(stage, "h[2-3]")
    stage.until(lambda: all(stage.phase(f"g-{number}") == "Running" for number in range(4)))
    assert [each["metadata"]["name"] for each in requests(stage)] == [name]
    for number in range(4):
        stage.api.delete(f"/api/v1/namespaces/default/pods/g-{number}", {"gracePeriodSeconds": 0})
    stage.until(lambda: requests(stage) == [] and templates(stage) == [])


def test_a_site_without_the_tier_asks_too(stage: PodStage) -> None:
    """No node of the present has the label; those of the group have it."""
    stage.api.patch("/api/v1/nodes/c0", {"metadata": {"labels": {LEAF: None}}})
    stage.start(node_groups=(A,))
    gang(stage, required="leaf")
    until_asked(stage)
    stage.until(lambda: "asks node group h100-a" in said(stage))
    join(stage, "h[0-3]")
    stage.until(lambda: all(stage.phase(f"g-{number}") == "Running" for number in range(4)))


@pytest.mark.parametrize("condition", ["Failed", "CapacityRevoked", "BookingExpired"])
def test_what_comes_to_nothing_is_asked_for_again_of_the_next_group(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    monkeypatch.setattr(provisioning_requests, "FIRST_PAUSE_S", 0.3)
    stage.start(node_groups=(A, B))
    gang(stage)
    first = until_asked(stage)
    answer(stage, first, "Accepted", condition, message="no quota")
    second = until_asked(stage, 2)
    assert [each["metadata"]["name"] for each in requests(stage)] == [second["metadata"]["name"]]
    assert second["metadata"]["annotations"]["gantree.io/node-group"] == "h100-b"
    assert len(templates(stage)) == 1
    stage.until(lambda: f"{second['metadata']['name']} asks node group h100-b" in said(stage))


def test_why_it_failed_is_said_meanwhile(stage: PodStage) -> None:
    stage.start(node_groups=(A,))
    gang(stage)
    answer(stage, until_asked(stage), "Failed", message="no quota")
    stage.until(lambda: "(failed: no quota); it is asked for again after 60 s." in said(stage))
    stage.until(lambda: requests(stage) == [])


def test_pauses_double_up_to_half_an_hour() -> None:
    assert [pause_s(attempt) for attempt in (1, 2, 3, 6, 99)] == [60, 120, 240, 1800, 1800]


def test_a_gang_that_is_cancelled_is_not_asked_for_any_more(stage: PodStage) -> None:
    stage.start(node_groups=(A,))
    gang(stage)
    until_asked(stage)
    (job,) = stage.controller.ledger.jobs
    stage.controller.jobs.cancel(job)
    stage.until(lambda: requests(stage) == [])
    stage.work_for(0.5)
    assert requests(stage) == []


def test_a_restart_follows_the_request_that_is_there(stage: PodStage) -> None:
    stage.start(node_groups=(A,))
    gang(stage)
    before = until_asked(stage)
    stage.kill()
    answer(stage, before, "Accepted")
    stage.start(node_groups=(A,))
    stage.until(lambda: "(accepted)" in said(stage))
    assert [each["metadata"]["uid"] for each in requests(stage)] == [before["metadata"]["uid"]]


@pytest.mark.parametrize(
    ("groups", "members"), [((), 4), ((SMALL,), 4), ((TAINTED,), 4), ((A, B), 5)]
)
def test_nothing_is_asked_for_that_would_not_hold_the_whole_gang(
    stage: PodStage, groups: tuple[NodeGroup, ...], members: int
) -> None:
    stage.start(node_groups=groups)
    gang(stage, members=members)
    stage.until(lambda: said(stage).startswith("Never fits"))
    stage.work_for(0.3)
    assert requests(stage) == []


def test_what_fits_once_others_have_ended_or_has_no_quota_is_not_asked_for(tmp_path: Path) -> None:
    policy = "preset: gantree\nqueues:\n  - {name: default}\n  - {name: small, limit: {gpus: 8}}\n"
    with PodStage(tmp_path, read_policy(policy, "policy.yaml")) as stage:
        define(stage)
        stage.nodes("n0")
        stage.start(node_groups=(A,))
        stage.pod("first", gpus=8)
        stage.until(lambda: stage.phase("first") == "Running")
        stage.pod("second", gpus=8)
        gang(stage, "limited", 2, queue="small")
        stage.until(lambda: bool(said(stage, "second") and said(stage, "limited-0")))
        stage.work_for(0.5)
        assert requests(stage) == []


@pytest.mark.faults
def test_a_missing_permission_is_said_and_it_is_tried_again(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "SEEN_WITHIN_S", 0.5)
    monkeypatch.setattr(pod_status, "EVERY_S", 0.2)
    no = {"verb": "create", "resource": "provisioningrequests", "code": 403, "times": None}
    stage.start(node_groups=(A,))
    fault = stage.running.call(lambda: stage.running.server.faults.add(**no))
    gang(stage)
    stage.until(lambda: "the nodes of the whole gang cannot be asked for: 403" in said(stage))
    fault.times = 0
    until_asked(stage)
    assert len(templates(stage)) == 1


def test_why_says_what_was_asked_for(stage: PodStage) -> None:
    stage.start(node_groups=(A,))
    gang(stage)
    request = until_asked(stage)
    (job,) = stage.controller.ledger.jobs
    stage.until(lambda: request["metadata"]["name"] in stage.controller.cluster.remains(job))


def test_without_the_definition_a_warning_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with PodStage(tmp_path) as stage:
        stage.nodes("c0", gpus=0)
        stage.start(node_groups=(A,))
        gang(stage)
        stage.until(lambda: said(stage).startswith("Never fits"))
        stage.work_for(1.2)
    told = [each.message for each in caplog.records if "node groups" in each.message]
    assert len(told) == 1
    assert "the server has no ProvisioningRequest" in told[0]


def test_a_template_is_the_pod_without_what_its_server_adds() -> None:
    meta = {"name": "p", "namespace": "default", "uid": "12345678-9", "labels": {"app": "x"}}
    token = {"name": "kube-api-access-x", "projected": {}}
    mount = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets"}
    data = {"name": "data", "mountPath": "/data"}
    pod: Json = {
        "metadata": meta,
        "spec": {
            "containers": [{"name": "m", "image": "x", "volumeMounts": [mount, data]}],
            "initContainers": [{"name": "i", "image": "x", "volumeMounts": [mount]}],
            "volumes": [token, {"name": "data", "emptyDir": {}}],
            "nodeSelector": {"zone": "z"},
            "schedulingGates": [{"name": "g"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    one = gang_of(
        ("default", "p", "pod"), None, [msgspec.json.decode(msgspec.json.encode(pod), type=Pod)]
    )
    spec = template_body(Wanted(one, A, 1), "t", pod)["template"]["spec"]
    assert spec["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert spec["containers"][0]["volumeMounts"] == [data]
    assert spec["initContainers"][0]["volumeMounts"] == []
    assert spec["nodeSelector"] == {"zone": "z", **dict(A.labels)}
    assert (spec["tolerations"], "schedulingGates" in spec) == ([{"operator": "Exists"}], False)
    assert Wanted(one, A, 3).name == "p-12345678-3"
