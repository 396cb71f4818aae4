"""Rights: who may bind, who may allocate. Only ours is asked: what a role is in a real server is its own matter."""

from collections.abc import Iterator

import pytest

from support.kubernetes.samples import allocation, binding, claim, pod
from support.kubernetes.server.access import Access, Grant, User
from support.kubernetes.server.server import Settings
from support.kubernetes.server.thread import Api, ServerThread

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
ALL = Grant(("*",), ("*",), ("*",))
READS = Grant(("get", "list", "watch"), ("*",), ("*",))
MAKES = Grant(("create",), ("", "resource.k8s.io"), ("pods", "resourceclaims"))
ALLOCATES = Grant(("patch", "update"), ("resource.k8s.io",), ("resourceclaims/status",))
BINDS_CLAIMS = Grant(("patch",), ("resource.k8s.io",), ("resourceclaims/binding",))


@pytest.fixture
def running() -> Iterator[ServerThread]:
    users = {
        "admin": User("admin", (ALL,)),
        "reader": User("reader", (READS, MAKES, ALLOCATES)),
        "scheduler": User("scheduler", (READS, ALLOCATES, BINDS_CLAIMS)),
        "elsewhere": User("elsewhere", (ALL,), ("team-a",)),
    }
    with ServerThread(Settings(access=Access(users))) as running:
        yield running


def test_who_shows_no_token_is_nobody(running: ServerThread) -> None:
    """Convention: 401 with reason Unauthorized."""
    for token in ("", "stolen"):
        with Api(running.url, token) as api:
            told = api.get(PODS)
        assert (told.status_code, told.json()["reason"]) == (401, "Unauthorized")


def test_to_bind_is_a_right_of_its_own(running: ServerThread) -> None:
    """Fact: RBAC without pods/binding create: 403."""
    with Api(running.url, "reader") as api:
        assert api.post(PODS, pod("a")).status_code == 201
        refused = api.post(f"{PODS}/a/binding", binding("a", "n0"))
        assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")
        assert 'cannot create resource "pods/binding"' in refused.json()["message"]
        assert api.get(f"{PODS}/a").status_code == 200
    with Api(running.url, "admin") as api:
        assert api.post(f"{PODS}/a/binding", binding("a", "n0")).status_code == 201


def test_to_allocate_takes_the_right_to_bind_claims(running: ServerThread) -> None:
    """Fact: resourceclaims/status AND resourceclaims/binding update|patch, else 422 "requires resource=...binding"."""
    with Api(running.url, "admin") as api:
        api.post(CLAIMS, claim("c"))
    body = {"status": {"allocation": allocation("gpu-0")}}
    with Api(running.url, "reader") as api:
        refused = api.patch(f"{CLAIMS}/c/status", body)
        assert refused.status_code == 422
        assert "requires resource=resourceclaims/binding" in refused.json()["message"]
        finalizer = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        assert api.patch(f"{CLAIMS}/c", finalizer).status_code == 403
    with Api(running.url, "scheduler") as api:
        assert api.patch(f"{CLAIMS}/c/status", body).status_code == 200


def test_a_role_of_a_namespace_ends_with_it(running: ServerThread) -> None:
    """Convention: what a RoleBinding grants holds in its namespace alone."""
    with Api(running.url, "elsewhere") as api:
        assert api.get(PODS).status_code == 403
        assert api.get("/api/v1/namespaces/team-a/pods").status_code == 200
        assert api.get("/api/v1/nodes").status_code == 403


def test_a_server_that_has_just_started_knows_no_roles_yet(running: ServerThread) -> None:
    """Fact: 403 for a moment after a restart, but for administrators."""
    access = running.server.settings.access
    assert access is not None
    access.knows_roles = False
    with Api(running.url, "reader") as reader, Api(running.url, "admin") as admin:
        assert (reader.get(PODS).status_code, admin.get(PODS).status_code) == (403, 200)
        access.knows_roles = True
        assert reader.get(PODS).status_code == 200
