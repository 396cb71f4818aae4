"""What holds for objects of every resource: who names them, versions, conflicts, status, finalizers, discovery."""

import pytest

from support.kubernetes.samples import node, pod
from support.kubernetes.server.thread import Api

MAPS = "/api/v1/namespaces/{}/configmaps"


def config(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


def test_a_new_object_gets_a_uid_a_version_and_the_time(api: Api, space: str) -> None:
    """Convention: metadata.uid, resourceVersion and creationTimestamp are the server's; creation is 201."""
    made = api.post(MAPS.format(space), {**config("a"), "apiVersion": "v1", "kind": "ConfigMap"})
    assert made.status_code == 201
    told = made.json()
    assert (told["kind"], told["apiVersion"]) == ("ConfigMap", "v1")
    metadata = told["metadata"]
    assert metadata["namespace"] == space
    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert api.get(f"{MAPS.format(space)}/a").json() == told


def test_a_name_is_taken_once(api: Api, space: str) -> None:
    """Convention: 409 with reason AlreadyExists."""
    api.post(MAPS.format(space), config("a"))
    again = api.post(MAPS.format(space), config("a"))
    assert (again.status_code, again.json()["reason"]) == (409, "AlreadyExists")
    assert again.json()["details"]["name"] == "a"


def test_generate_name_makes_names_that_differ(api: Api, space: str) -> None:
    """Convention: generateName is completed by five characters."""
    names = {
        api.post(MAPS.format(space), {"metadata": {"generateName": "a-"}}).json()["metadata"][
            "name"
        ]
        for _ in range(3)
    }
    assert len(names) == 3
    assert all(name.startswith("a-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({}, "metadata.name"),
        ({"name": "Upper"}, "metadata.name"),
        ({"name": "a..b"}, "metadata.name"),
        ({"name": "a", "labels": {"job": "not a label"}}, "metadata.labels"),
        ({"name": "a", "labels": {"job": "x" * 64}}, "metadata.labels"),
        ({"name": "a", "labels": {"a/b/c": "x"}}, "metadata.labels"),
        ({"name": "a", "annotations": {"sp ace": "x"}}, "metadata.annotations"),
        ({"name": "a", "annotations": {"a": "x" * 262_145}}, "metadata.annotations"),
    ],
)
def test_names_labels_and_annotations_have_a_form(
    api: Api, space: str, metadata: dict[str, object], field: str
) -> None:
    """Convention: 422 with reason Invalid and the field among its causes."""
    refused = api.post(MAPS.format(space), {"metadata": metadata})
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")
    assert field in {cause["field"] for cause in refused.json()["details"]["causes"]}


def test_what_is_not_there_is_not_found(api: Api, space: str) -> None:
    """Convention: 404 with reason NotFound, of an object and of the namespace of a new one."""
    told = [
        api.get(f"{MAPS.format(space)}/none"),
        api.delete(f"{MAPS.format(space)}/none"),
        api.patch(f"{MAPS.format(space)}/none", {}),
        api.post(MAPS.format("none"), config("a")),
    ]
    assert [(each.status_code, each.json()["reason"]) for each in told] == [(404, "NotFound")] * 4


@pytest.mark.parametrize(
    "path",
    ["/none", "/apis/none.example.com", "/apis/none.example.com/v1/things"],
)
def test_a_path_that_leads_nowhere_is_answered_in_text(api: Api, path: str) -> None:
    """Convention: 404 page not found, which is no Status and no JSON."""
    told = api.get(path)
    assert (told.status_code, told.text.strip()) == (404, "404 page not found")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/none",
        "/api/v9/pods",
        "/apis/scheduling.k8s.io/v9",
        "/apis/scheduling.k8s.io/v1/none",
        "/api/v1/nodes/a/none",
        "/api/v1/pods/a",
        "/api/v1/namespaces/default/nodes",
    ],
)
def test_what_a_group_does_not_have_is_answered_by_a_status(api: Api, path: str) -> None:
    """Fact: below a built-in group an unknown version, resource or part of one is a Status of 404."""
    told = api.get(path)
    assert (told.status_code, told.json()["reason"]) == (404, "NotFound")
    assert told.json()["message"] == "the server could not find the requested resource"


def test_what_is_in_a_namespace_is_created_there_only(api: Api) -> None:
    """Fact: 405 for a POST to, and a DELETE of, the collection above the namespaces."""
    for told in (api.post("/api/v1/pods", pod("a")), api.delete("/api/v1/pods")):
        assert (told.status_code, told.json()["reason"]) == (405, "MethodNotAllowed")


def test_an_object_of_another_kind_or_namespace_is_refused(api: Api, space: str) -> None:
    """Convention: 400 with reason BadRequest."""
    for body in (
        {**config("a"), "kind": "Secret", "apiVersion": "v1"},
        {"metadata": {"name": "a", "namespace": "default"}},
    ):
        refused = api.post(MAPS.format(space), body)
        assert (refused.status_code, refused.json()["reason"]) == (400, "BadRequest")


def test_a_write_on_an_old_version_conflicts(api: Api, space: str) -> None:
    """Convention: optimistic concurrency, 409 with reason Conflict, for PUT and for PATCH."""
    path = f"{MAPS.format(space)}/a"
    first = api.post(MAPS.format(space), config("a", n="1")).json()
    second = api.put(path, {**first, "data": {"n": "2"}})
    assert second.status_code == 200
    assert int(second.json()["metadata"]["resourceVersion"]) > int(
        first["metadata"]["resourceVersion"]
    )
    stale = api.put(path, {**first, "data": {"n": "3"}})
    assert (stale.status_code, stale.json()["reason"]) == (409, "Conflict")
    version = first["metadata"]["resourceVersion"]
    patched = api.patch(path, {"metadata": {"resourceVersion": version}, "data": {"n": "3"}})
    assert (patched.status_code, patched.json()["reason"]) == (409, "Conflict")
    assert api.get(path).json()["data"] == {"n": "2"}


def test_a_write_that_changes_nothing_makes_no_version(api: Api, space: str) -> None:
    """Convention: a write that leaves an object as it is is not stored."""
    made = api.post(MAPS.format(space), config("a", n="1")).json()
    same = api.patch(f"{MAPS.format(space)}/a", {"data": {"n": "1"}}).json()
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_write_for_another_uid_is_refused(api: Api, space: str) -> None:
    """Server 1.36: a uid in a PUT and in preconditions of a deletion is a guard, 409; a patch of it is 422."""
    made = api.post(MAPS.format(space), config("a")).json()
    other = "00000000-0000-0000-0000-000000000000"
    path = f"{MAPS.format(space)}/a"
    refused = api.patch(path, {"metadata": {"uid": other}, "data": {"n": "1"}})
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")
    assert refused.json()["details"]["causes"][0]["field"] == "metadata.uid"
    meant = {**made, "metadata": {**made["metadata"], "uid": other}}
    assert api.put(path, meant).status_code == 409
    assert api.delete(path, {"preconditions": {"uid": other}}).status_code == 409
    gone = api.delete(path, {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (gone.status_code, gone.json()["status"]) == (200, "Success")
    assert gone.json()["details"]["uid"] == made["metadata"]["uid"]
    assert api.get(path).status_code == 404


def test_a_lease_is_replaced_only_by_who_has_read_it(api: Api, space: str) -> None:
    """Convention: an update of a Lease without resourceVersion is 422."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases"
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}}
    assert api.post(path, lease).status_code == 201
    blind = api.put(f"{path}/a", lease)
    assert (blind.status_code, blind.json()["reason"]) == (422, "Invalid")


def test_status_and_the_rest_are_written_apart(api: Api, space: str) -> None:
    """Convention: a write to /status changes nothing else, one without it leaves status alone."""
    path = f"/api/v1/namespaces/{space}/pods"
    api.post(path, {**pod("a"), "status": {"phase": "Running"}})
    assert api.get(f"{path}/a").json()["status"]["phase"] == "Pending"
    change = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    assert api.patch(f"{path}/a", change).json()["status"]["phase"] == "Pending"
    told = api.patch(
        f"{path}/a/status", {"spec": {"nodeName": "x"}, "status": {"message": "m"}}
    ).json()
    assert (told["status"]["message"], told["spec"].get("nodeName")) == ("m", None)


def test_a_status_that_was_never_written_is_not_written_with_the_rest(api: Api, space: str) -> None:
    """Convention: of a resource with a status, neither creation nor update takes one along."""
    path, ingress = (
        f"/api/v1/namespaces/{space}/services",
        {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    )
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    service = {"metadata": {"name": "a"}, "spec": spec, "status": ingress}
    made = api.post(path, service)
    changed = api.patch(f"{path}/a", {"metadata": {"labels": {"a": "b"}}, "status": ingress})
    for told in (made.json(), changed.json()):
        assert "ingress" not in told.get("status", {}).get("loadBalancer", {})
    told = api.patch(f"{path}/a/status", {"status": ingress}).json()
    assert told["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"


def test_generation_counts_changes_of_the_spec(api: Api, space: str) -> None:
    """Convention: metadata.generation is 1 at first, and counts changes of the desired state alone."""
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
    body = {"metadata": {"name": "a"}, "spec": {"minAvailable": 1}}
    assert api.post(path, body).json()["metadata"]["generation"] == 1
    labelled = api.patch(f"{path}/a", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json()["metadata"]["generation"] == 1
    assert (
        api.patch(f"{path}/a", {"spec": {"minAvailable": 2}}).json()["metadata"]["generation"] == 2
    )


def test_a_node_registers_with_its_status(api: Api, space: str) -> None:
    """Convention: kubelets create their Node with its status, and capacity is what can be allocated. Fact: a new node
    is tainted until the controller of nodes finds it ready."""
    made = api.post("/api/v1/nodes", node(space, cpu="8")).json()
    assert made["status"]["allocatable"] == {"cpu": "8"}
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert made["spec"]["taints"] == [taint]
    assert api.delete(f"/api/v1/nodes/{space}").status_code == 200


def test_a_finalizer_keeps_an_object(api: Api, space: str) -> None:
    """Convention: deletionTimestamp is set, no finalizer can be added, the last one to go takes the object along."""
    path = f"{MAPS.format(space)}/a"
    api.post(MAPS.format(space), {"metadata": {"name": "a", "finalizers": ["example.com/f"]}})
    kept = api.delete(path).json()
    assert kept["metadata"]["deletionTimestamp"].endswith("Z")
    assert kept["metadata"]["deletionGracePeriodSeconds"] == 0
    more = {"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}
    assert api.patch(path, more).status_code == 422
    assert api.patch(path, {"metadata": {"finalizers": None}}).status_code == 200
    assert api.get(path).status_code == 404


def test_a_collection_is_deleted_by_a_selector(api: Api, space: str) -> None:
    """Convention: DELETE of a collection deletes what its selector matches."""
    for name, label in (("a", "x"), ("b", "y")):
        api.post(MAPS.format(space), {"metadata": {"name": name, "labels": {"l": label}}})
    assert api.delete(MAPS.format(space), labelSelector="l=x").status_code == 200
    left = api.get(MAPS.format(space), labelSelector="l").json()["items"]
    assert [each["metadata"]["name"] for each in left] == ["b"]


def test_a_namespace_that_goes_takes_nothing_new(api: Api, space: str) -> None:
    """Convention: it is Terminating, and what is created in it is 403."""
    api.post(MAPS.format(space), {"metadata": {"name": "a", "finalizers": ["example.com/f"]}})
    gone = api.delete(f"/api/v1/namespaces/{space}").json()
    assert gone["status"]["phase"] == "Terminating"
    refused = api.post(MAPS.format(space), config("b"))
    assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")


def test_a_body_that_is_no_object_is_refused(ours: Api) -> None:
    """Convention: 400; and what this server does not do it refuses instead of doing something else."""
    path = MAPS.format("default")
    for body in (b"{", b"[]", b""):
        assert ours.http.post(path, content=body).status_code == 400
    assert ours.post(path, config("a"), dryRun="All").status_code == 400
    assert ours.get(f"{path}/a").status_code == 404


def test_an_object_that_it_cannot_read_is_told_as_a_bug(ours: Api) -> None:
    """A Status of 500 with the place, so that a test that meets it shows why."""
    told = ours.post("/api/v1/namespaces/default/pods", {"metadata": {"name": "a"}, "spec": 7})
    assert (told.status_code, told.json()["reason"]) == (500, "InternalError")
    assert "pods.py" in told.json()["message"]


def test_discovery_tells_groups_versions_and_resources(api: Api) -> None:
    """Fact: scheduling.k8s.io/v1 has priorityclasses only; resource.k8s.io/v1 has claims with status, and no others."""
    assert "v1" in api.get("/api").json()["versions"]
    groups = {each["name"]: each for each in api.get("/apis").json()["groups"]}
    assert {"scheduling.k8s.io", "resource.k8s.io", "policy", "batch"} <= set(groups)
    assert api.get("/apis/scheduling.k8s.io").json()["name"] == "scheduling.k8s.io"
    told = api.get("/apis/scheduling.k8s.io/v1").json()
    assert [each["name"] for each in told["resources"]] == ["priorityclasses"]
    told = api.get("/apis/resource.k8s.io/v1").json()
    assert [each["name"] for each in told["resources"]] == [
        "deviceclasses", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "resourceslices",
    ]  # fmt: skip


def test_it_tells_its_version_and_its_health(api: Api) -> None:
    """Convention: /version and /healthz; the facts are of 1.36."""
    assert api.get("/version").json()["major"] == "1"
    assert api.get("/healthz").text == "ok"
