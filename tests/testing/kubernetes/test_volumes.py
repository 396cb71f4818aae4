"""PersistentVolumes and their claims: what a server asks of them."""

from typing import Any

import pytest

from support.kubernetes.server.thread import Api

VOLUME = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "hostPath": {"path": "/data"},
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def causes(api: Api, path: str, name: str, spec: dict[str, Any]) -> list[str]:
    refused = api.post(path, {"metadata": {"name": name}, "spec": spec})
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")
    return [each["field"] for each in refused.json()["details"]["causes"]]


@pytest.mark.parametrize(
    ("absent", "field"),
    [("capacity", "spec.capacity"), ("accessModes", "spec.accessModes"), ("hostPath", "spec")],
)
def test_a_volume_is_whole(api: Api, space: str, absent: str, field: str) -> None:
    """Fact: 422 without a capacity, ways to have it, or a source; a whole one is Pending until its controller comes."""
    path = "/api/v1/persistentvolumes"
    spec = {name: told for name, told in VOLUME.items() if name != absent}
    assert set(causes(api, path, space, spec)) == {field}
    made = api.post(path, {"metadata": {"name": space}, "spec": VOLUME})
    assert (made.status_code, made.json()["status"]["phase"]) == (201, "Pending")


@pytest.mark.parametrize(
    ("absent", "field"),
    [("accessModes", "spec.accessModes"), ("resources", "spec.resources[storage]")],
)
def test_a_claim_of_a_volume_is_whole(api: Api, space: str, absent: str, field: str) -> None:
    """Fact: 422 without ways to have it or an amount; a whole one is Pending."""
    path = f"/api/v1/namespaces/{space}/persistentvolumeclaims"
    spec = {name: told for name, told in CLAIM.items() if name != absent}
    assert causes(api, path, "a", spec) == [field]
    made = api.post(path, {"metadata": {"name": "a"}, "spec": CLAIM})
    assert (made.status_code, made.json()["status"]["phase"]) == (201, "Pending")
