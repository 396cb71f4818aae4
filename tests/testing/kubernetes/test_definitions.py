"""Custom resources: what a definition defines is served, with its schema; and goes with the definition."""

from itertools import islice
from typing import Any

import pytest

from support.kubernetes.samples import definition
from support.kubernetes.server.thread import Api

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["minMember"],
            "properties": {
                "minMember": {"type": "integer", "minimum": 1},
                "queue": {"type": "string", "default": "main"},
                "port": {"x-kubernetes-int-or-string": True},
                "note": {"type": "string", "nullable": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {"phase": {"type": "string", "enum": ["Pending", "Running"]}},
        },
    },
}


@pytest.fixture
def groups(api: Api, space: str) -> str:
    """A PodGroup as Volcano has it, of a group of the test's own."""
    group = f"{space}.example.com"
    api.define(definition(group, "PodGroup", "podgroups", SCHEMA))
    return f"/apis/{group}/v1/namespaces/{space}/podgroups"


def group_of(groups: str, name: str, **spec: Any) -> dict[str, Any]:
    api_version = "/".join(groups.split("/")[2:4])
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def test_what_is_defined_is_served(api: Api, space: str, groups: str) -> None:
    """Fact: CRD works: a moment later it is established, discovered, created, listed with its kind, versioned."""
    told = api.get(f"{DEFINITIONS}/podgroups.{space}.example.com").json()["status"]["conditions"]
    assert {"type": "Established", "status": "True"}.items() <= told[1].items()
    rows = api.get(f"/apis/{space}.example.com/v1").json()["resources"]
    assert [each["name"] for each in rows] == ["podgroups", "podgroups/status"]
    assert api.post(groups, group_of(groups, "a", minMember=2)).status_code == 201
    listed = api.get(groups).json()
    assert (listed["kind"], listed["items"][0]["kind"]) == ("PodGroupList", "PodGroup")
    with api.watch(groups, resourceVersion="0") as events:
        assert next(events)["object"]["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"minMember": "2"},
        {"minMember": 0},
        {"minMember": 1, "port": True},
        {"minMember": 1, "labels": {"a": 1}},
    ],
)
def test_a_schema_refuses(api: Api, groups: str, spec: dict[str, Any]) -> None:
    """Fact: schema 422."""
    refused = api.post(groups, group_of(groups, "a", **spec))
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")
    assert refused.json()["details"]["causes"]


def test_a_schema_cuts_and_fills_in(api: Api, groups: str) -> None:
    """Convention: unknown fields of a structural schema are pruned, defaults set, int-or-string and null taken; a null
    that is not allowed counts as absent."""
    spec = {"minMember": 1, "port": "http", "note": None, "labels": {"a": "b"}, "free": {"x": [1]}}
    made = api.post(groups, group_of(groups, "a", **spec, unknown=1, queue=None)).json()
    assert made["spec"] == {**spec, "queue": "main"}


def test_its_status_is_a_part_of_its_own(api: Api, groups: str) -> None:
    """Fact: status subresource + schema 422."""
    body = {**group_of(groups, "a", minMember=1), "status": {"phase": "Running"}}
    assert "status" not in api.post(groups, body).json()
    told = api.patch(
        f"{groups}/a/status", {"spec": {"minMember": 5}, "status": {"phase": "Running"}}
    ).json()
    assert (told["status"]["phase"], told["spec"]["minMember"]) == ("Running", 1)
    assert told["metadata"]["generation"] == 1
    assert api.patch(f"{groups}/a/status", {"status": {"phase": "None"}}).status_code == 422


def test_custom_objects_are_replaced_by_who_has_read_them(api: Api, groups: str) -> None:
    """Convention: PUT without resourceVersion is 422; strategic merge is 415; an object without kind is 400."""
    body = group_of(groups, "a", minMember=1)
    assert api.post(groups, {**body, "kind": None}).status_code == 400
    assert (
        api.post(groups, {"metadata": {"name": "a"}, "spec": {"minMember": 1}}).status_code == 400
    )
    api.post(groups, body)
    assert api.put(f"{groups}/a", body).status_code == 422
    assert api.patch(f"{groups}/a", {}, "application/strategic-merge-patch+json").status_code == 415


def test_a_definition_takes_its_objects_along(api: Api, space: str, groups: str) -> None:
    """Fact: it goes a moment after it was told to, its objects before it, then its path is 404."""
    api.post(groups, group_of(groups, "a", minMember=1))
    told = api.delete(f"{DEFINITIONS}/podgroups.{space}.example.com")
    assert (told.status_code, told.json()["kind"]) == (200, "CustomResourceDefinition")
    assert told.json()["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    api.until(groups, lambda told: told.status_code == 404)
    assert api.get(groups).text.strip() == "404 page not found"


def test_a_definition_that_goes_waits_for_its_objects(api: Api, space: str, groups: str) -> None:
    """Fact: an object that a finalizer holds holds its definition, of which nothing new is created meanwhile, 403."""
    held = group_of(groups, "a", minMember=1)
    api.post(groups, {**held, "metadata": {"name": "a", "finalizers": ["example.com/f"]}})
    api.delete(f"{DEFINITIONS}/podgroups.{space}.example.com")
    refused = api.post(groups, group_of(groups, "b", minMember=1))
    assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")
    api.until(f"{groups}/a", lambda told: "deletionTimestamp" in told.json()["metadata"])
    assert api.get(groups).status_code == 200
    assert api.patch(f"{groups}/a", {"metadata": {"finalizers": None}}).status_code == 200
    path = f"{DEFINITIONS}/podgroups.{space}.example.com"
    api.until(path, lambda told: told.status_code == 404)


def test_a_definition_is_established_a_moment_after_it_came(api: Api, space: str) -> None:
    """Fact: it is created without conditions, then told to be installed, then established."""
    version = api.get(DEFINITIONS).json()["metadata"]["resourceVersion"]
    made = api.post(DEFINITIONS, definition(f"{space}.example.com", "Queue", "queues"))
    assert made.json()["status"]["conditions"] is None
    with api.watch(DEFINITIONS, resourceVersion=version) as events:
        told = [each["object"] for each in islice(events, 3)]
    assert [each["status"]["conditions"] is None for each in told] == [True, False, False]
    reasons = [[each["reason"] for each in one["status"]["conditions"]] for one in told[1:]]
    assert reasons == [["NoConflicts", "Installing"], ["NoConflicts", "InitialNamesAccepted"]]


def test_names_of_definitions_are_taken_once_in_a_group(api: Api, space: str) -> None:
    """Fact: a second definition of a kind is kept, is not accepted and is not served."""
    group = f"{space}.example.com"
    api.define(definition(group, "Queue", "queues"))
    assert api.post(DEFINITIONS, definition(group, "Queue", "others")).status_code == 201
    path = f"{DEFINITIONS}/others.{group}"
    api.until(path, lambda told: bool(told.json()["status"].get("conditions")))
    conditions = {each["type"]: each for each in api.get(path).json()["status"]["conditions"]}
    assert conditions["NamesAccepted"]["status"] == "False"
    assert conditions["NamesAccepted"]["reason"].endswith("Conflict")
    assert conditions["Established"]["reason"] == "NotAccepted"
    assert api.get(f"/apis/{group}/v1/others").status_code == 404


def test_a_definition_of_a_group_of_kubernetes_is_approved_of(api: Api, space: str) -> None:
    """Fact: of *.k8s.io and *.kubernetes.io only with the annotation api-approved.kubernetes.io, else 422."""
    body = definition(f"{space}.k8s.io", "Queue", "queues")
    refused = api.post(DEFINITIONS, body)
    assert refused.status_code == 422
    (cause,) = refused.json()["details"]["causes"]
    assert cause["field"] == "metadata.annotations[api-approved.kubernetes.io]"
    api.define(body)


def test_a_definition_is_named_after_what_it_defines(api: Api, space: str) -> None:
    """Convention: metadata.name is PLURAL.GROUP, else 422."""
    body = definition(f"{space}.example.com", "Queue", "queues")
    assert api.post(DEFINITIONS, {**body, "metadata": {"name": "queues"}}).status_code == 422


def test_how_many_there_are_to_be_is_asked_and_written_at_scale(api: Api, space: str) -> None:
    """Fact (read): "Extend the Kubernetes API with CustomResourceDefinitions", scale subresource."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    body = definition(f"{space}.example.com", "Crowd", "crowds", schema)
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    body["spec"]["versions"][0]["subresources"] = {"status": {}, "scale": paths}
    api.define(body)
    url = f"/apis/{space}.example.com/v1/namespaces/{space}/crowds"
    kind = {"apiVersion": f"{space}.example.com/v1", "kind": "Crowd"}
    assert api.post(url, {**kind, "metadata": {"name": "a"}, "spec": {}}).status_code == 201
    assert api.get(f"{url}/a/scale").status_code == 500
    assert api.patch(f"{url}/a/scale", {"spec": {"replicas": 3}}).status_code == 200
    told = api.get(f"{url}/a/scale").json()
    assert (told["kind"], told["spec"], told["status"]) == (
        "Scale",
        {"replicas": 3},
        {"replicas": 0},
    )
    kept = api.get(f"{url}/a").json()
    assert (kept["spec"], kept["metadata"]["generation"]) == ({"size": 3}, 2)
    assert api.put(f"{url}/a/scale", {**told, "spec": {"replicas": 2}}).json()["spec"] == {
        "replicas": 2
    }
    for replicas in (-1, "many"):
        assert api.patch(f"{url}/a/scale", {"spec": {"replicas": replicas}}).status_code == 422
