"""What goes with what: dependents with owners, content with its namespace. A real server leaves it to controllers."""

from typing import Any

from support.kubernetes.samples import binding, pod
from support.kubernetes.server.thread import Api

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


def owner(api: Api, name: str) -> dict[str, Any]:
    metadata = api.post(MAPS, {"metadata": {"name": name}}).json()["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": metadata["uid"]}


def is_there(api: Api, path: str) -> bool:
    return api.get(path).status_code == 200


def test_dependents_go_with_their_last_owner(ours: Api) -> None:
    """Convention: Background propagation; what has another owner stays until that is gone too."""
    first, second = owner(ours, "first"), owner(ours, "second")
    ours.post(PODS, pod("one", {"ownerReferences": [first]}))
    ours.post(PODS, pod("both", {"ownerReferences": [first, second]}))
    ours.delete(f"{MAPS}/first")
    assert [is_there(ours, f"{PODS}/{name}") for name in ("one", "both")] == [False, True]
    ours.delete(f"{MAPS}/second")
    assert not is_there(ours, f"{PODS}/both")


def test_a_foreground_deletion_waits_for_the_dependents(ours: Api) -> None:
    """Convention: finalizer foregroundDeletion; the answer is 202."""
    ours.post(PODS, pod("a", {"ownerReferences": [owner(ours, "o")]}))
    ours.post(f"{PODS}/a/binding", binding("a", "n0"))
    told = ours.delete(f"{MAPS}/o", propagationPolicy="Foreground")
    assert (told.status_code, told.json()["metadata"]["finalizers"]) == (
        202,
        ["foregroundDeletion"],
    )
    assert "deletionTimestamp" in ours.get(f"{PODS}/a").json()["metadata"]
    assert is_there(ours, f"{MAPS}/o")
    ours.delete(f"{PODS}/a", gracePeriodSeconds=0)
    assert not is_there(ours, f"{MAPS}/o")


def test_an_orphan_stays_and_forgets_its_owner(ours: Api) -> None:
    """Convention: propagationPolicy Orphan."""
    ours.post(PODS, pod("a", {"ownerReferences": [owner(ours, "o")]}))
    ours.delete(f"{MAPS}/o", propagationPolicy="Orphan")
    assert not is_there(ours, f"{MAPS}/o")
    assert ours.get(f"{PODS}/a").json()["metadata"].get("ownerReferences", []) == []
    assert is_there(ours, f"{PODS}/a")


def test_a_namespace_goes_when_it_is_empty(ours: Api) -> None:
    """Convention: its content is deleted, each in its way; then it is gone."""
    ours.post("/api/v1/namespaces", {"metadata": {"name": "s"}})
    pods = "/api/v1/namespaces/s/pods"
    for name in "ab":
        ours.post(pods, pod(name))
    ours.post(f"{pods}/b/binding", binding("b", "n0"))
    ours.delete("/api/v1/namespaces/s")
    assert [each["metadata"]["name"] for each in ours.get(pods).json()["items"]] == ["b"]
    assert is_there(ours, "/api/v1/namespaces/s")
    ours.delete(f"{pods}/b", gracePeriodSeconds=0)
    assert not is_there(ours, "/api/v1/namespaces/s")


def test_a_dependent_of_nobody_goes(ours: Api) -> None:
    """Convention: an object all of whose owners are absent is garbage from the beginning."""
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "no-such-uid"}
    assert ours.post(PODS, pod("a", {"ownerReferences": [stranger]})).status_code == 201
    assert not is_there(ours, f"{PODS}/a")
    assert (
        ours.post(PODS, pod("b", {"ownerReferences": [stranger, owner(ours, "o")]})).status_code
        == 201
    )
    assert is_there(ours, f"{PODS}/b")
