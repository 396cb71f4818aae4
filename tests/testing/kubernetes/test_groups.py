"""Workloads and PodGroups: as served at v1alpha2, absent, and at the versions that were only read."""

from typing import Any

import pytest

from support.kubernetes.samples import pod, pod_group
from support.kubernetes.server.server import Settings
from support.kubernetes.server.thread import Api, ServerThread

GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}
PROTECTION = "scheduling.k8s.io/podgroup-protection"


def under(space: str, version: str = "v1alpha2") -> str:
    return f"/apis/scheduling.k8s.io/{version}/namespaces/{space}"


def workload(name: str, *templates: dict[str, Any]) -> dict[str, Any]:
    told = templates or ({"name": "workers", **GANG},)
    return {"metadata": {"name": name}, "spec": {"podGroupTemplates": list(told)}}


def test_a_group_alone_is_protected_and_has_a_priority(api: Api, space: str) -> None:
    """Fact: podGroupTemplateRef is optional; the server adds a finalizer and priority 0."""
    made = api.post(f"{under(space)}/podgroups", pod_group("g")).json()
    assert made["metadata"]["finalizers"] == [PROTECTION]
    assert made["spec"]["priority"] == 0
    assert made["spec"]["schedulingPolicy"] == GANG["schedulingPolicy"]


def test_the_workload_of_a_group_must_be_there(api: Api, space: str) -> None:
    """Fact: a missing Workload is refused (403 'PodGroup rejected: Workload "none" not found')."""
    ref = {"workload": {"workloadName": "w", "podGroupTemplateName": "workers"}}
    refused = api.post(f"{under(space)}/podgroups", pod_group("g", podGroupTemplateRef=ref))
    assert refused.status_code == 403
    assert 'PodGroup rejected: Workload "w" not found' in refused.json()["message"]
    assert api.post(f"{under(space)}/workloads", workload("w")).status_code == 201
    assert (
        api.post(f"{under(space)}/podgroups", pod_group("g", podGroupTemplateRef=ref)).status_code
        == 201
    )


def test_the_spec_of_a_group_never_changes(api: Api, space: str) -> None:
    """Fact: spec immutable (minCount change 422)."""
    api.post(f"{under(space)}/podgroups", pod_group("g"))
    change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}}
    assert api.patch(f"{under(space)}/podgroups/g", change).status_code == 422


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 4}}},
        {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
        {"resourceClaims": [{"name": f"c{n}", "resourceClaimName": "x"} for n in range(5)]},
    ],
)
def test_a_group_is_basic_or_a_gang_with_few_constraints(
    api: Api, space: str, spec: dict[str, Any]
) -> None:
    """Fact: basic xor gang (both: 422). At most 1 topology constraint, 4 resourceClaims."""
    assert api.post(f"{under(space)}/podgroups", pod_group("g", **spec)).status_code == 422


def test_a_workload_has_at_most_eight_templates(api: Api, space: str) -> None:
    """Fact: at most 8 templates."""
    templates = [{"name": f"t{n}", **GANG} for n in range(9)]
    assert api.post(f"{under(space)}/workloads", workload("w", *templates)).status_code == 422
    assert api.post(f"{under(space)}/workloads", workload("w", *templates[:8])).status_code == 201


def test_a_scheduler_tells_that_a_group_is_scheduled(api: Api, space: str) -> None:
    """Fact: PATCH podgroups/NAME/status conditions type PodGroupScheduled; there is no workloads/status."""
    api.post(f"{under(space)}/podgroups", pod_group("g"))
    told = {
        "type": "PodGroupScheduled",
        "status": "True",
        "reason": "Scheduled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    answer = api.patch(f"{under(space)}/podgroups/g/status", {"status": {"conditions": [told]}})
    assert (answer.status_code, answer.json()["status"]["conditions"][0]["reason"]) == (
        200,
        "Scheduled",
    )
    api.post(f"{under(space)}/workloads", workload("w"))
    assert api.patch(f"{under(space)}/workloads/w/status", {"status": {}}).status_code == 404


def test_a_group_that_is_deleted_stays_while_it_is_protected(api: Api, space: str) -> None:
    """Fact: the server adds finalizer scheduling.k8s.io/podgroup-protection."""
    api.post(f"{under(space)}/podgroups", pod_group("g"))
    assert "deletionTimestamp" in api.delete(f"{under(space)}/podgroups/g").json()["metadata"]
    api.patch(f"{under(space)}/podgroups/g", {"metadata": {"finalizers": None}})
    assert api.get(f"{under(space)}/podgroups/g").status_code == 404


def test_without_the_gates_there_are_no_groups() -> None:
    """Fact: Workload/PodGroup: 404; pod.spec.schedulingGroup is silently dropped (201); v1 has priorityclasses only."""
    with ServerThread(Settings(gang_api=None)) as running, Api(running.url) as api:
        assert api.get(f"{under('default')}/podgroups").status_code == 404
        versions = api.get("/apis/scheduling.k8s.io").json()["versions"]
        assert [each["version"] for each in versions] == ["v1"]
        made = api.post(
            "/api/v1/namespaces/default/pods", pod("a", schedulingGroup={"podGroupName": "g"})
        )
        assert made.status_code == 201
        assert "schedulingGroup" not in made.json()["spec"]


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_the_later_versions_name_their_workload_otherwise(version: str) -> None:
    """Fact (read): v1beta1/v1alpha3 PodGroup has spec.workloadRef, disruptionMode is an object {single|all}, v1alpha2
    is not served, and v1alpha3 has CompositePodGroup."""
    with ServerThread(Settings(gang_api=version)) as running, Api(running.url) as api:
        groups = f"{under('default', version)}/podgroups"
        told = [
            each["name"]
            for each in api.get(f"/apis/scheduling.k8s.io/{version}").json()["resources"]
        ]
        assert ("compositepodgroups" in told) == (version == "v1alpha3")
        assert api.get(f"{under('default')}/podgroups").status_code == 404
        ref = {"workloadName": "w", "templateName": "workers"}
        body = {
            "metadata": {"name": "g"},
            "spec": {**GANG, "workloadRef": ref, "disruptionMode": {"all": {}}},
        }
        assert api.post(groups, body).status_code == 403
        api.post(f"{under('default', version)}/workloads", workload("w"))
        assert api.post(groups, body).status_code == 201
        word = {"metadata": {"name": "h"}, "spec": {**GANG, "disruptionMode": "PodGroup"}}
        assert api.post(groups, word).status_code == 400


def test_a_condition_of_a_group_is_whole(api: Api, space: str) -> None:
    """Fact: 422 without the time or the reason of a condition."""
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{space}/podgroups"
    assert api.post(path, pod_group("g")).status_code == 201
    whole = {
        "type": "PodGroupScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for absent in ("lastTransitionTime", "reason"):
        condition = {name: told for name, told in whole.items() if name != absent}
        refused = api.patch(f"{path}/g/status", {"status": {"conditions": [condition]}})
        assert refused.status_code == 422
    assert api.patch(f"{path}/g/status", {"status": {"conditions": [whole]}}).status_code == 200
