"""Pods: binding, gates, priority, deletion with grace, what may change."""

from typing import Any

import pytest

from support.kubernetes.client import STRATEGIC
from support.kubernetes.samples import binding, node, pod
from support.kubernetes.server.thread import Api

PODS = "/api/v1/namespaces/{}/pods"
GATED: dict[str, Any] = {"schedulingGates": [{"name": "example.com/wait"}]}


@pytest.fixture
def pods(space: str) -> str:
    return PODS.format(space)


def condition(told: dict[str, Any], kind: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [
        each for each in told["status"].get("conditions", ()) if each["type"] == kind
    ]
    return found[0]


def test_a_binding_names_the_node(api: Api, pods: str) -> None:
    """Fact: POST .../binding -> 201, a Status; the pod is scheduled."""
    api.post(pods, pod("a"))
    told = api.post(f"{pods}/a/binding", binding("a", "n0"))
    assert (told.status_code, told.json()["kind"], told.json()["status"]) == (
        201,
        "Status",
        "Success",
    )
    bound = api.get(f"{pods}/a").json()
    assert bound["spec"]["nodeName"] == "n0"
    assert condition(bound, "PodScheduled")["status"] == "True"


def test_a_pod_is_bound_once(api: Api, pods: str) -> None:
    """Fact: already bound: 409 "already assigned", to the same node too."""
    api.post(pods, pod("a"))
    api.post(f"{pods}/a/binding", binding("a", "n0"))
    for name in ("n0", "n1"):
        again = api.post(f"{pods}/a/binding", binding("a", name))
        assert (again.status_code, again.json()["reason"]) == (409, "Conflict")
        assert "already assigned" in again.json()["message"]
    assert api.get(f"{pods}/a").json()["spec"]["nodeName"] == "n0"


def test_a_binding_for_another_uid_conflicts(api: Api, pods: str) -> None:
    """Fact: metadata.uid not the pod's: 409 (a guard)."""
    uid = api.post(pods, pod("a")).json()["metadata"]["uid"]
    other = api.post(
        f"{pods}/a/binding", binding("a", "n0", uid="00000000-0000-0000-0000-000000000000")
    )
    assert (other.status_code, other.json()["reason"]) == (409, "Conflict")
    assert api.post(f"{pods}/a/binding", binding("a", "n0", uid=uid)).status_code == 201


def test_a_gated_pod_is_not_bound_until_its_gates_are_gone(api: Api, pods: str) -> None:
    """Fact: gated: 409 ("non-empty .spec.schedulingGates"). Convention: reason SchedulingGated until then."""
    gated = api.post(pods, pod("a", **GATED)).json()
    assert condition(gated, "PodScheduled")["reason"] == "SchedulingGated"
    refused = api.post(f"{pods}/a/binding", binding("a", "n0"))
    assert refused.status_code == 409
    assert "non-empty .spec.schedulingGates" in refused.json()["message"]
    more = {"spec": {"schedulingGates": [*GATED["schedulingGates"], {"name": "example.com/more"}]}}
    assert api.patch(f"{pods}/a", more).status_code == 422
    assert api.patch(f"{pods}/a", {"spec": {"schedulingGates": None}}).status_code == 200
    assert api.post(f"{pods}/a/binding", binding("a", "n0")).status_code == 201


def test_a_binding_brings_annotations_and_labels(api: Api, pods: str) -> None:
    """Fact: Binding.metadata.annotations AND labels are merged into the pod atomically with the bind."""
    api.post(pods, pod("a", {"annotations": {"a": "1"}, "labels": {"l": "1"}}))
    bound = binding("a", "n0", annotations={"gpus": "0,1"}, labels={"m": "2"})
    assert api.post(f"{pods}/a/binding", bound).status_code == 201
    metadata = api.get(f"{pods}/a").json()["metadata"]
    assert metadata["annotations"] == {"a": "1", "gpus": "0,1"}
    assert metadata["labels"] == {"l": "1", "m": "2"}


def test_a_bound_pod_has_the_topology_labels_of_its_node(api: Api, space: str, pods: str) -> None:
    """Fact: the node's topology region/zone labels are copied to the pod."""
    region, zone = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
    api.post("/api/v1/nodes", node(space, {region: "r", zone: "z", "rack": "k"}))
    api.post(pods, pod("a"))
    api.post(f"{pods}/a/binding", binding("a", space))
    assert api.get(f"{pods}/a").json()["metadata"]["labels"] == {region: "r", zone: "z"}


def test_neither_node_nor_room_is_checked(api: Api, pods: str) -> None:
    """Fact: binding to a missing node is accepted (201); neither capacity nor a gang is checked by the server."""
    huge = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "9999"}}}]
    api.post(pods, pod("a", containers=huge))
    assert api.post(f"{pods}/a/binding", binding("a", "no-such-node")).status_code == 201


def test_a_pod_that_is_not_there_is_not_bound(api: Api, pods: str) -> None:
    """Convention: 404 for the pod, 400 for another name than the address has."""
    assert api.post(f"{pods}/none/binding", binding("none", "n0")).status_code == 404
    api.post(pods, pod("a"))
    assert api.post(f"{pods}/a/binding", binding("b", "n0")).status_code == 400


def test_a_scheduler_tells_why_a_pod_waits(api: Api, pods: str) -> None:
    """Fact: pod status patch (PodScheduled=False/Unschedulable, nominatedNodeName) works."""
    api.post(pods, pod("a"))
    told = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no room",
    }
    status = {"status": {"conditions": [told], "nominatedNodeName": "n1"}}
    media_type = "application/strategic-merge-patch+json"
    answer = api.patch(f"{pods}/a/status", status, media_type)
    assert answer.status_code == 200
    assert condition(answer.json(), "PodScheduled")["message"] == "no room"
    assert answer.json()["status"]["nominatedNodeName"] == "n1"


def test_a_bound_pod_goes_when_its_kubelet_says_so(api: Api, pods: str) -> None:
    """Convention: deletionTimestamp is set; a deletion with grace 0 ends it; grace only shrinks."""
    api.post(pods, pod("a", terminationGracePeriodSeconds=20))
    api.post(f"{pods}/a/binding", binding("a", "n0"))
    told = api.delete(f"{pods}/a").json()
    assert told["metadata"]["deletionGracePeriodSeconds"] == 20
    assert api.delete(f"{pods}/a", {"gracePeriodSeconds": 25}).status_code == 200
    assert api.get(f"{pods}/a").json()["metadata"]["deletionGracePeriodSeconds"] == 20
    assert api.delete(f"{pods}/a", {"gracePeriodSeconds": 5}).status_code == 200
    assert api.get(f"{pods}/a").json()["metadata"]["deletionGracePeriodSeconds"] == 5
    assert api.delete(f"{pods}/a", {"gracePeriodSeconds": 0}).status_code == 200
    assert api.get(f"{pods}/a").status_code == 404


def test_a_pod_that_goes_is_not_bound(api: Api, pods: str) -> None:
    """Convention: 409 for a pod with a deletionTimestamp."""
    api.post(pods, pod("a", {"finalizers": ["example.com/f"]}))
    api.delete(f"{pods}/a")
    refused = api.post(f"{pods}/a/binding", binding("a", "n0"))
    assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")


@pytest.mark.parametrize("phase", [None, "Succeeded", "Failed"])
def test_a_pod_that_no_kubelet_needs_goes_at_once(api: Api, pods: str, phase: str | None) -> None:
    """Convention: a pod without a node, or one that has ended, is gone with its deletion."""
    api.post(pods, pod("a"))
    if phase:
        api.post(f"{pods}/a/binding", binding("a", "n0"))
        api.patch(f"{pods}/a/status", {"status": {"phase": phase}})
    assert api.delete(f"{pods}/a").json()["kind"] == "Pod"
    assert api.get(f"{pods}/a").status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"nodeName": "n9"},
        {"schedulerName": "other"},
        {"priority": 7},
        {"containers": [{"name": "main", "image": "registry/train:1", "command": ["x"]}]},
        {"tolerations": [{"key": "other", "operator": "Exists"}]},
        {"restartPolicy": "Always"},
    ],
)
def test_most_of_a_pod_never_changes(api: Api, pods: str, change: dict[str, Any]) -> None:
    """Convention: pod updates may not change fields other than a few, 422."""
    api.post(pods, pod("a", tolerations=[{"key": "gpu", "operator": "Exists"}]))
    refused = api.patch(f"{pods}/a", {"spec": change})
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")


def test_what_every_pod_tolerates_comes_back(api: Api, pods: str) -> None:
    """Fact: five minutes on a node that is not ready or cannot be reached; a change without them is filled in again."""
    made = api.post(pods, pod("a")).json()["spec"]["tolerations"]
    assert len(made) == 2
    for told in ([], [{"key": "gpu", "operator": "Exists"}]):
        changed = api.patch(f"{pods}/a", {"spec": {"tolerations": told}})
        assert changed.status_code == 200
        assert changed.json()["spec"]["tolerations"] == [*told, *made]


def test_a_pod_that_was_read_can_be_written(api: Api, pods: str) -> None:
    """Convention: PUT of what was read, with an image and a toleration more, is taken."""
    told = api.post(pods, pod("a")).json()
    told["spec"]["containers"][0]["image"] = "registry/train:2"
    told["spec"]["tolerations"].append({"key": "gpu", "operator": "Exists"})
    assert api.put(f"{pods}/a", told).status_code == 200


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image"),
        ({"containers": [{"name": "a", "image": "i", "resources": {"requests": {"example.com/gpu": "1"}}}]},
         "spec.containers[0].resources.limits"),
        ({"resourceClaims": [{"name": "g"}]}, "spec.resourceClaims[0]"),
    ],
)  # fmt: skip
def test_a_pod_has_a_form(api: Api, pods: str, spec: dict[str, Any], field: str) -> None:
    """Convention: 422 that names the field; extended resources are limited to what they request."""
    refused = api.post(pods, pod("a", **spec))
    assert refused.status_code == 422
    assert field in {cause["field"] for cause in refused.json()["details"]["causes"]}


def test_what_is_limited_is_requested(api: Api, pods: str) -> None:
    """Convention: requests default to limits; both alike for cpu and memory is Guaranteed."""
    limits = {"cpu": "1", "memory": "1Gi", "example.com/gpu": "8"}
    made = api.post(
        pods, pod("a", containers=[{"name": "m", "image": "i", "resources": {"limits": limits}}])
    )
    assert made.json()["spec"]["containers"][0]["resources"]["requests"] == limits
    assert made.json()["status"]["qosClass"] == "Guaranteed"


def test_a_pod_has_the_value_of_its_priority_class(api: Api, space: str, pods: str) -> None:
    """Convention: priority admission; a class that is not there is 403, a pod without one has 0; the system has two."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.post(classes, {"metadata": {"name": space}, "value": 77, "preemptionPolicy": "Never"})
    spec = api.post(pods, pod("a", priorityClassName=space)).json()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (77, "Never")
    assert api.post(pods, pod("b")).json()["spec"]["priority"] == 0
    assert api.post(pods, pod("c", priorityClassName="none")).status_code == 403
    critical = api.post(pods, pod("d", priorityClassName="system-node-critical")).json()
    assert critical["spec"]["priority"] == 2_000_001_000


def test_the_group_of_a_pod_never_changes(api: Api, pods: str) -> None:
    """Fact: pod spec.schedulingGroup {"podGroupName"} is immutable."""
    made = api.post(pods, pod("a", schedulingGroup={"podGroupName": "g"})).json()
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    other = api.patch(f"{pods}/a", {"spec": {"schedulingGroup": {"podGroupName": "h"}}})
    assert other.status_code == 422


def budget(min_available: int) -> dict[str, Any]:
    spec = {"minAvailable": min_available, "selector": {"matchLabels": {"app": "x"}}}
    return {"metadata": {"name": "b"}, "spec": spec}


def runs(api: Api, pods: str, name: str, is_ready: str) -> None:
    """A pod of a budget runs."""
    api.post(pods, pod(name, {"labels": {"app": "x"}}))
    api.post(f"{pods}/{name}/binding", binding(name, "n0"))
    ready = {"type": "Ready", "status": is_ready}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    assert api.patch(f"{pods}/{name}/status", status).status_code == 200


def eviction(name: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


def test_an_eviction_deletes_the_pod(api: Api, pods: str) -> None:
    """Fact: eviction works: 201, and the pod goes as with a deletion."""
    api.post(pods, pod("a"))
    api.post(f"{pods}/a/binding", binding("a", "n0"))
    assert api.post(f"{pods}/a/eviction", eviction("a")).status_code == 201
    assert "deletionTimestamp" in api.get(f"{pods}/a").json()["metadata"]
    assert api.post(f"{pods}/none/eviction", eviction("none")).status_code == 404


def test_a_budget_refuses_an_eviction(api: Api, space: str, pods: str) -> None:
    """Convention: 429 where the status allows none or is older than the spec; each eviction is charged to it."""
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
    for name in ("a", "b"):
        runs(api, pods, name, "True")
    api.post(path, budget(1))
    early = api.post(f"{pods}/a/eviction", eviction("a"))
    assert (early.status_code, early.json()["reason"]) == (429, "TooManyRequests")
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    assert api.patch(f"{path}/b/status", {"status": status}).status_code == 200
    api.patch(f"{path}/b", {"spec": {"minAvailable": 0}})
    assert api.post(f"{pods}/a/eviction", eviction("a")).status_code == 429
    api.patch(f"{path}/b/status", {"status": {"observedGeneration": 2}})
    assert api.post(f"{pods}/a/eviction", eviction("a")).status_code == 201
    told = api.get(f"{path}/b").json()["status"]
    assert (told["disruptionsAllowed"], list(told["disruptedPods"])) == (0, ["a"])
    late = api.post(f"{pods}/b/eviction", eviction("b"))
    assert late.status_code == 429
    assert late.json()["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in api.get(f"{pods}/b").json()["metadata"]


def amounts(**told: str) -> dict[str, Any]:
    """A container's resources, as many requested as the limit."""
    return {"requests": told, "limits": told}


def test_a_pod_is_resized_before_it_is_bound(api: Api, pods: str) -> None:
    """Fact: PATCH .../resize changes cpu and memory of containers, and nothing else; the generation grows."""
    made = pod("a")
    made["spec"]["containers"][0]["resources"] = amounts(cpu="1000", memory="1Gi")
    before = api.post(pods, made).json()
    name = before["spec"]["containers"][0]["name"]
    smaller = {"name": name, "image": "other", "resources": amounts(cpu="1", memory="1Gi")}
    patch = {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [smaller]}}
    told = api.patch(f"{pods}/a/resize", patch, STRATEGIC)
    assert told.status_code == 200, told.text
    after = api.get(f"{pods}/a").json()
    (container,) = after["spec"]["containers"]
    assert container["resources"] == amounts(cpu="1", memory="1Gi")
    assert container["image"] == before["spec"]["containers"][0]["image"]
    assert "x" not in after["metadata"].get("labels", {})
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1


def test_a_resize_that_changes_the_class_of_service_is_refused(api: Api, pods: str) -> None:
    """Fact: 422, "Pod QOS Class may not change"."""
    made = pod("a")
    made["spec"]["containers"][0]["resources"] = amounts(cpu="2", memory="1Gi")
    name = api.post(pods, made).json()["spec"]["containers"][0]["name"]
    fewer = {"name": name, "resources": {"requests": {"cpu": "1"}}}
    told = api.patch(f"{pods}/a/resize", {"spec": {"containers": [fewer]}}, STRATEGIC)
    assert (told.status_code, told.json()["reason"]) == (422, "Invalid")
    assert "QOS" in told.text


def test_a_running_pod_is_resized_only_where_its_kubelet_tells_sizes(api: Api, pods: str) -> None:
    """Fact: 422, "Pod running on node without support for resize", while a running container names no resources."""
    made = pod("a")
    made["spec"]["containers"][0]["resources"] = amounts(cpu="2", memory="1Gi")
    name = api.post(pods, made).json()["spec"]["containers"][0]["name"]
    running = {"name": name, "state": {"running": {"startedAt": "2026-11-27T10:00:00Z"}}}
    status = {"status": {"phase": "Running", "containerStatuses": [running]}}
    assert api.patch(f"{pods}/a/status", status, STRATEGIC).status_code == 200
    larger = {"name": name, "resources": amounts(cpu="4", memory="1Gi")}
    patch = {"spec": {"containers": [larger]}}
    told = api.patch(f"{pods}/a/resize", patch, STRATEGIC)
    assert (told.status_code, "without support for resize" in told.text) == (422, True)
    running["resources"] = amounts(cpu="2", memory="1Gi")
    assert api.patch(f"{pods}/a/status", status, STRATEGIC).status_code == 200
    assert api.patch(f"{pods}/a/resize", patch, STRATEGIC).status_code == 200


def test_a_pod_that_is_not_ready_is_evicted_within_its_budget(
    api: Api, space: str, pods: str
) -> None:
    """Fact: while as many are healthy as the budget wants, one that is not goes without a charge; else 429."""
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
    for name in ("a", "b"):
        runs(api, pods, name, "False")
    api.post(path, budget(1))
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 3,
    }
    assert api.patch(f"{path}/b/status", {"status": status}).status_code == 200
    assert api.post(f"{pods}/a/eviction", eviction("a")).status_code == 201
    assert api.get(f"{path}/b").json()["status"].get("disruptedPods", {}) == {}
    api.patch(f"{path}/b/status", {"status": {"currentHealthy": 0}})
    assert api.post(f"{pods}/b/eviction", eviction("b")).status_code == 429
    always = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    assert api.patch(f"{path}/b", always).status_code == 200
    assert api.post(f"{pods}/b/eviction", eviction("b")).status_code == 201
