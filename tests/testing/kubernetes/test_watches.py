"""Watches: where they begin, what they tell, how they end."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from support.kubernetes.samples import binding, pod
from support.kubernetes.server.thread import Api, ServerThread

PODS = "/api/v1/namespaces/{}/pods"
Event = dict[str, Any]


def version_of(api: Api, space: str) -> str:
    version: str = api.get(PODS.format(space)).json()["metadata"]["resourceVersion"]
    return version


def seen(events: Iterator[Event], count: int) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"]["name"]) for each in islice(events, count)]


def test_a_watch_tells_what_comes_after_its_revision(api: Api, space: str) -> None:
    """Convention: ADDED, MODIFIED, DELETED in order, whole objects with their kind; the revision itself is not told.
    Fact: a pod that goes at once is told to go before, with a grace of 0."""
    path = PODS.format(space)
    api.post(path, pod("before"))
    version = version_of(api, space)
    api.post(path, pod("a"))
    with api.watch(path, resourceVersion=version) as events:
        api.patch(f"{path}/a", {"metadata": {"labels": {"l": "x"}}})
        api.delete(f"{path}/a", gracePeriodSeconds=0)
        told = list(islice(events, 4))
    assert [each["type"] for each in told] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert told[2]["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
    assert {each["object"]["kind"] for each in told} == {"Pod"}
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in told]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)


def test_a_watch_goes_on_where_another_ended(api: Api, space: str) -> None:
    """Convention: a watch from the version of the last event tells every later one once."""
    path = PODS.format(space)
    version = version_of(api, space)
    for name in "abc":
        api.post(path, pod(name))
    with api.watch(path, resourceVersion=version) as events:
        first = next(events)["object"]["metadata"]
    with api.watch(path, resourceVersion=first["resourceVersion"]) as events:
        assert seen(events, 2) == [("ADDED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
def test_a_watch_from_nowhere_first_tells_what_is_there(
    api: Api, space: str, query: dict[str, str]
) -> None:
    """Convention: without a revision, or from 0, synthetic ADDED events come first."""
    path = PODS.format(space)
    api.post(path, pod("a"))
    with api.watch(path, **query) as events:
        api.post(path, pod("b"))
        assert seen(events, 2) == [("ADDED", "a"), ("ADDED", "b")]


def test_initial_events_end_with_a_bookmark(api: Api, space: str) -> None:
    """Convention: sendInitialEvents; the bookmark after them is annotated k8s.io/initial-events-end."""
    path = PODS.format(space)
    api.post(path, pod("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with api.watch(path, **query) as events:
        first, mark = islice(events, 2)
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(
        first["object"]["metadata"]["resourceVersion"]
    )


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
    ],
)
def test_initial_events_need_a_match(api: Api, space: str, query: dict[str, str]) -> None:
    """Convention: sendInitialEvents and resourceVersionMatch=NotOlderThan come together, else 422."""
    assert api.get(PODS.format(space), watch="1", **query).status_code == 422


def test_what_no_longer_matches_is_told_as_deleted(api: Api, space: str) -> None:
    """Convention: of a watch with a selector; a binding takes a pod out of spec.nodeName= and into spec.nodeName=n0."""
    path = PODS.format(space)
    version = version_of(api, space)
    api.post(path, pod("a"))
    api.post(f"{path}/a/binding", binding("a", "n0"))
    with api.watch(path, resourceVersion=version, fieldSelector="spec.nodeName=") as events:
        waiting = list(islice(events, 2))
    with api.watch(path, resourceVersion=version, fieldSelector="spec.nodeName=n0") as events:
        assert seen(events, 1) == [("ADDED", "a")]
    assert [each["type"] for each in waiting] == ["ADDED", "DELETED"]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in waiting]
    assert versions[1] > versions[0]
    assert "nodeName" not in waiting[1]["object"]["spec"]


def test_a_watch_ends_after_its_time(api: Api, space: str) -> None:
    """Convention: timeoutSeconds; the stream ends in order."""
    with api.watch(PODS.format(space), resourceVersion="0", timeoutSeconds=1) as events:
        assert list(events) == []


def test_a_watch_of_all_namespaces_tells_only_its_resource(api: Api, space: str) -> None:
    """Convention: a watch above the namespaces; other resources have watches of their own."""
    version = version_of(api, space)
    api.post(f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": "c"}})
    api.post(PODS.format(space), pod("a"))
    with api.watch("/api/v1/pods", resourceVersion=version) as events:
        assert seen(events, 1) == [("ADDED", "a")]


def test_a_revision_that_is_too_old_is_an_error_event(running: ServerThread, ours: Api) -> None:
    """Convention: 200 and an ERROR event with a Status of 410, where there is a watch cache."""
    version = version_of(ours, "default")
    ours.post(PODS.format("default"), pod("a"))
    running.call(running.server.compact)
    with ours.watch(PODS.format("default"), resourceVersion=version) as events:
        (error,) = events
    assert error["type"] == "ERROR"
    assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")


def test_a_revision_that_is_too_old_may_be_an_answer_too(running: ServerThread, ours: Api) -> None:
    """Convention: 410 as the answer itself."""
    running.server.faults.gone_in_stream = False
    version = version_of(ours, "default")
    ours.post(PODS.format("default"), pod("a"))
    running.call(running.server.compact)
    told = ours.get(PODS.format("default"), watch="1", resourceVersion=version)
    assert (told.status_code, told.json()["reason"]) == (410, "Expired")


def test_bookmarks_tell_how_far_a_quiet_watch_is(running: ServerThread, ours: Api) -> None:
    """Convention: allowWatchBookmarks; a bookmark holds kind, version and the revision up to which all was told."""
    running.server.faults.bookmark_s = running.server.faults.progress_s = 0.05
    version = version_of(ours, "default")
    ours.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
    with ours.watch(PODS.format("default"), **query) as events:
        mark = next(events)
    assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "Pod")
    assert int(mark["object"]["metadata"]["resourceVersion"]) > int(version)


def test_a_watch_of_an_idle_kind_is_told_nothing(running: ServerThread, ours: Api) -> None:
    """Server 1.36 with etcd's defaults: bookmarks begin with the first change of the kind, or after ten minutes."""
    running.server.faults.bookmark_s = 0.05
    version = version_of(ours, "default")
    ours.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    query = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": 1}
    with ours.watch(PODS.format("default"), **query) as events:
        assert list(events) == []
    ours.post(PODS.format("default"), pod("a"))
    with ours.watch(PODS.format("default"), **query) as events:
        told = [each["type"] for each in islice(events, 3)]
    assert told == ["ADDED", "BOOKMARK", "BOOKMARK"]
