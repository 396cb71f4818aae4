"""One object that is odd, or written as only some clients write, must not stop what has to do with all others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import JobObject, Node, Pod, read_object
from gantree.executors.kubernetes.nodes.site import site_of
from gantree.executors.kubernetes.pods.shapes import labels_of
from gantree.model.node_rules import read_rule, read_tolerations
from support.pods import PodStage

NULLS = {
    "labels": None,
    "annotations": None,
    "ownerReferences": None,
    "finalizers": None,
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


def node(name: str, labels: dict[str, str] | None = None, **amounts: str) -> Node:
    told = {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "8", **amounts}
    metadata = {"name": name, "labels": labels or {}}
    return msgspec.convert({"metadata": metadata, "status": {"allocatable": told}}, Node)


def pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "uid": "u"}, "spec": spec}, Pod)


def like(operator: str, *values: str) -> dict[str, Any]:
    """The affinity of a pod that asks one thing of a label."""
    terms = [{"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def create(stage: PodStage, name: str, metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": "gantree", **spec},
    }
    answer = stage.api.post("/api/v1/namespaces/default/pods", body)
    assert answer.status_code == 201, answer.text


def with_nulls(name: str) -> dict[str, Any]:
    """The spec of a pod as a client in Go writes one whose maps and lists are empty."""
    resources = {"requests": None, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": name, "image": "train", "resources": resources, "ports": None}
    return {"containers": [container], "nodeSelector": None, "tolerations": None}


def test_nulls_in_the_place_of_maps_and_lists_are_nothing_there(stage: PodStage) -> None:
    """As listed at the start, and as watched later."""
    stage.nodes("n0")
    create(stage, "listed", NULLS, with_nulls("main"))
    stage.start()
    create(stage, "watched", NULLS, with_nulls("main"))
    stage.until(lambda: stage.bound("listed", "watched"))


@pytest.mark.only_ours
def test_an_object_that_cannot_be_read_hides_no_other(stage: PodStage) -> None:
    stage.nodes("n0")
    container = {"name": "main", "image": "train"}
    odd = {"containers": [container], "activeDeadlineSeconds": "soon"}
    create(stage, "odd", {}, odd)
    stage.pod("listed", gpus=1)
    stage.start()
    create(stage, "odder", {}, odd)
    stage.pod("watched", gpus=1)
    stage.until(lambda: stage.bound("listed", "watched"))
    for name in ("odd", "odder", "listed"):
        stage.api.delete(f"/api/v1/namespaces/default/pods/{name}")
    stage.pod("last", gpus=7)
    stage.until(lambda: stage.bound("last"))


def test_of_a_job_nothing_is_kept_but_how_many_pods_it_has() -> None:
    """There may be very many Jobs, each with a template."""
    body = {"metadata": {"name": "j"}, "spec": {"parallelism": 2, "template": {"spec": {}}}}
    read = read_object(msgspec.json.encode(body), msgspec.json.Decoder(JobObject))
    assert read.spec == {"parallelism": 2}


@pytest.mark.parametrize(
    "odd",
    [
        node("odd", {"topology.kubernetes.io/zone": "Zone A/b"}),
        node("odd", {"nvidia.com/gpu.clique": "..1"}),
        node("odd", cpu="many"),
        node("odd", memory="-4"),
    ],
)
def test_an_odd_node_is_left_out_and_told(odd: Node) -> None:
    reading = site_of("k", [node("n0"), odd, node("n1")])
    assert [each.name for each in reading.cluster.nodes] == ["n0", "n1"]
    assert any("odd" in warning for warning in reading.warnings)


@pytest.mark.only_ours
def test_while_nodes_are_odd_gangs_start_on_the_others(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    capacity = {"cpu": "many", "memory": "1Gi", "pods": "110"}
    stage.running.run(stage.kubelet.register("odd", capacity, {}))
    stage.nodes("n1")
    for number in range(2):
        stage.pod(f"p{number}", gpus=8)
    stage.until(lambda: stage.bound("p0", "p1"))


@pytest.mark.only_ours
def test_nodes_that_make_no_site_leave_the_last_one(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    status = {"capacity": {"cpu": "many"}, "allocatable": {"cpu": "many"}}
    answer = stage.api.patch("/api/v1/nodes/n0/status", {"status": status})
    assert answer.status_code == 200, answer.text
    seen = stage.controller.clock() + 2.0
    stage.until(lambda: stage.controller.clock() > seen)
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.bound("p0"))


@pytest.mark.parametrize(
    "affinity",
    [like("Gt", "many"), like("Lt"), like("Gt", "1", "2"), like("Near", "a"), like("In")],
)
def test_a_requirement_that_means_nothing_admits_no_node(affinity: dict[str, Any]) -> None:
    (rule,) = [text for _, text in labels_of(pod(affinity=affinity).spec)]
    assert read_rule(rule) == ()


def test_a_requirement_that_can_be_said_is_kept() -> None:
    told = dict(labels_of(pod(affinity=like("Gt", "-5")).spec))
    assert told == {"gantree.nodes": "k > -5"}


def test_a_toleration_that_no_taint_can_be_like_tolerates_nothing() -> None:
    tolerations = [{"key": "a b", "operator": "Exists"}, {"key": "c", "operator": "Exists"}]
    ((_, text),) = labels_of(pod(tolerations=tolerations).spec)
    assert [each.key for each in read_tolerations(text)] == ["c"]


def test_an_odd_pod_waits_and_others_start(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    stage.pod("odd", gpus=1, spec={"affinity": like("Gt", "many")})
    stage.pod("odder", gpus=1, annotations={"gantree.io/priority": "--5"})
    stage.pod("p0", gpus=1)
    stage.until(lambda: stage.bound("p0"))
    assert not stage.bound("odd")


@pytest.mark.parametrize("key", ["gantree.nodes", "gantree.tolerates"])
def test_who_selects_nodes_by_the_key_of_a_rule_gets_none_instead_of_the_rule(key: str) -> None:
    labels = dict(labels_of(pod(nodeSelector={key: "k"}).spec))
    assert labels == {"gantree.nodes": ""}
