"""Lists: selectors of labels and fields, pages, revisions."""

import pytest

from support.kubernetes.samples import binding, pod
from support.kubernetes.server.thread import Api, ServerThread

PODS = "/api/v1/namespaces/{}/pods"


def names(api: Api, path: str, **query: str) -> list[str]:
    told = api.get(path, **query)
    assert told.status_code == 200, told.text
    return [each["metadata"]["name"] for each in told.json()["items"]]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=a", ["one"]),
        ("tier==a", ["one"]),
        ("tier!=a", ["three", "two"]),
        ("tier", ["one", "two"]),
        ("!tier", ["three"]),
        ("tier in (a, b)", ["one", "two"]),
        ("tier notin (a),rank", ["two"]),
        ("tier notin (a)", ["three", "two"]),
        ("tier in (a,b),rank=0", ["one"]),
        ("example.com/x=y", []),
    ],
)
def test_labels_select(api: Api, space: str, selector: str, expected: list[str]) -> None:
    """Convention: equality, sets and existence; != and notin match what has no such label; names in order."""
    for name, labels in (
        ("one", {"tier": "a", "rank": "0"}),
        ("two", {"tier": "b", "rank": "1"}),
        ("three", {}),
    ):
        api.post(PODS.format(space), pod(name, {"labels": labels}))
    assert names(api, PODS.format(space), labelSelector=selector) == expected


def test_fields_select(api: Api, space: str) -> None:
    """Convention: pods by metadata.name, spec.nodeName, spec.schedulerName and status.phase."""
    path = PODS.format(space)
    api.post(path, pod("a", schedulerName="gantree"))
    api.post(path, pod("b"))
    api.post(f"{path}/b/binding", binding("b", "n0"))
    api.patch(f"{path}/b/status", {"status": {"phase": "Running"}})
    for selector, expected in (
        ("metadata.name=a", ["a"]),
        ("spec.nodeName=n0", ["b"]),
        ("spec.nodeName=", ["a"]),
        ("spec.nodeName!=", ["b"]),
        ("spec.schedulerName=gantree", ["a"]),
        ("status.phase=Running,spec.schedulerName!=gantree", ["b"]),
    ):
        assert names(api, path, fieldSelector=selector) == expected, selector


@pytest.mark.parametrize(
    "query",
    [
        {"fieldSelector": "spec.priority=0"},
        {"fieldSelector": "a"},
        {"labelSelector": "a in b"},
        {"limit": "many"},
        {"resourceVersion": "-1"},
    ],
)
def test_a_query_that_the_server_does_not_understand_is_refused(
    api: Api, space: str, query: dict[str, str]
) -> None:
    """Convention: 400."""
    assert api.get(PODS.format(space), **query).status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "NotOlderThan"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"resourceVersionMatch": "Newest", "resourceVersion": "1"},
    ],
)
def test_a_match_of_revisions_needs_one(api: Api, space: str, query: dict[str, str]) -> None:
    """Fact: resourceVersionMatch without resourceVersion, of 0 exactly, or of no such name: 422 of ListOptions."""
    refused = api.get(PODS.format(space), **query)
    assert (refused.status_code, refused.json()["details"]["kind"]) == (422, "ListOptions")
    assert refused.json()["details"]["causes"][0]["field"] == "resourceVersionMatch"


def test_pages_tell_one_revision(api: Api, space: str) -> None:
    """Convention: limit and continue; what changes between two pages is not seen by the second."""
    path = PODS.format(space)
    for name in "abcde":
        api.post(path, pod(name))
    first = api.get(path, limit=2).json()
    assert [each["metadata"]["name"] for each in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    api.delete(f"{path}/c", gracePeriodSeconds=0)
    second = api.get(path, **{"limit": 2, "continue": first["metadata"]["continue"]}).json()
    assert [each["metadata"]["name"] for each in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = api.get(path, **{"limit": 2, "continue": second["metadata"]["continue"]}).json()
    assert [each["metadata"]["name"] for each in third["items"]] == ["e"]
    assert "continue" not in third["metadata"]


def test_an_exact_revision_is_told_as_it_was(api: Api, space: str) -> None:
    """Convention: resourceVersionMatch=Exact."""
    path = PODS.format(space)
    api.post(path, pod("a"))
    version = api.get(path).json()["metadata"]["resourceVersion"]
    api.post(path, pod("b"))
    api.delete(f"{path}/a", gracePeriodSeconds=0)
    assert names(api, path, resourceVersion=version, resourceVersionMatch="Exact") == ["a"]
    assert names(api, path) == ["b"]


def test_a_revision_that_has_not_come_yet_is_waited_for_in_vain(api: Api, space: str) -> None:
    """Convention: 504 with reason Timeout, to be asked again."""
    told = api.get(PODS.format(space), resourceVersion="999999999")
    assert (told.status_code, told.json()["reason"]) == (504, "Timeout")


def test_items_of_a_built_in_resource_do_not_tell_their_kind(api: Api, space: str) -> None:
    """Convention: the list is a PodList, its items have no kind and no apiVersion."""
    api.post(PODS.format(space), pod("a"))
    told = api.get(PODS.format(space)).json()
    assert (told["kind"], told["apiVersion"]) == ("PodList", "v1")
    assert {"kind", "apiVersion"}.isdisjoint(told["items"][0])


def test_a_page_that_is_asked_for_too_late_is_gone(running: ServerThread, ours: Api) -> None:
    """Convention: 410 with reason Expired for a continue token whose revision was compacted."""
    path = PODS.format("default")
    for name in "ab":
        ours.post(path, pod(name))
    token = ours.get(path, limit=1).json()["metadata"]["continue"]
    ours.post(path, pod("c"))
    running.call(running.server.compact)
    late = ours.get(path, **{"limit": 1, "continue": token})
    assert (late.status_code, late.json()["reason"]) == (410, "Expired")
