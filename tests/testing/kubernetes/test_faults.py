"""The knobs: each does what a real server may do, and no more. They are turned in this process and over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import httpx
import pytest

from support.kubernetes.samples import binding, claim, pod
from support.kubernetes.server.thread import Api, ServerThread

PODS = "/api/v1/namespaces/default/pods"
KNOBS = "/gantree-faults"


def version_of(api: Api) -> str:
    version: str = api.get(PODS).json()["metadata"]["resourceVersion"]
    return version


@pytest.mark.parametrize(
    ("code", "reason"),
    [(409, "Conflict"), (410, "Expired"), (429, "TooManyRequests"), (500, "InternalError"),
     (503, "ServiceUnavailable")],
)  # fmt: skip
def test_a_request_is_refused_and_not_carried_out(ours: Api, code: int, reason: str) -> None:
    """Convention: a Status of this code; 429 and 503 tell after which time to ask again; the next request is served."""
    ours.post(PODS, pod("a"))
    fault = {
        "do": "add",
        "verb": "create",
        "resource": "pods/binding",
        "code": code,
        "retry_after_s": 7,
    }
    assert ours.post(KNOBS, fault).status_code == 200
    refused = ours.post(f"{PODS}/a/binding", binding("a", "n0"))
    assert (refused.status_code, refused.json()["reason"]) == (code, reason)
    assert refused.headers.get("Retry-After") == ("7" if code in {429, 503} else None)
    assert "nodeName" not in ours.get(f"{PODS}/a").json()["spec"]
    assert ours.post(f"{PODS}/a/binding", binding("a", "n0")).status_code == 201
    assert ours.get(KNOBS).json()["waiting"][0]["met"] == 1


def test_a_fault_lets_some_through_and_ends(running: ServerThread, ours: Api) -> None:
    """A knob: skip and times count the requests that match."""
    running.server.faults.add(verb="create", resource="pods", code=500, skip=1, times=2)
    codes = [ours.post(PODS, pod(name)).status_code for name in "abcd"]
    assert codes == [201, 500, 500, 201]


def test_an_answer_is_lost_and_the_write_is_done(running: ServerThread, ours: Api) -> None:
    """Convention: a connection may break after the server has done what was asked; the bind is not known to be done."""
    ours.post(PODS, pod("a"))
    running.server.faults.add(verb="create", resource="pods/binding", is_lost=True)
    with pytest.raises(httpx.TransportError):
        ours.post(f"{PODS}/a/binding", binding("a", "n0"))
    assert ours.get(f"{PODS}/a").json()["spec"]["nodeName"] == "n0"
    assert ours.post(f"{PODS}/a/binding", binding("a", "n0")).status_code == 409


def test_a_late_answer_is_of_a_write_that_was_done_before(running: ServerThread, ours: Api) -> None:
    """Convention: a client that gives up does not know whether its write was done; it was."""
    ours.post(PODS, pod("a"))
    running.server.faults.add(verb="create", resource="pods/binding", delay_s=60.0)
    with pytest.raises(httpx.ReadTimeout):
        ours.http.post(f"{PODS}/a/binding", json=binding("a", "n0"), timeout=0.5)
    assert ours.get(f"{PODS}/a").json()["spec"]["nodeName"] == "n0"


@pytest.mark.parametrize("cut", [False, True])
def test_all_watches_end_now(ours: Api, cut: bool) -> None:
    """Fact: the apiserver force-closes watches at any moment; in order, or with the connection."""
    version = version_of(ours)
    with ours.watch(PODS, resourceVersion=version) as events:
        ours.post(PODS, pod("a"))
        assert next(events)["object"]["metadata"]["name"] == "a"
        assert ours.post(KNOBS, {"do": "end_watches", "resource": "pods", "cut": cut}).json() == {
            "ended": 1
        }
        if cut:
            with pytest.raises(httpx.TransportError):
                next(events)
        else:
            assert list(events) == []
    assert ours.post(KNOBS, {"do": "end_watches"}).json() == {"ended": 0}


def test_each_watch_ends_after_some_events_and_none_is_lost(ours: Api) -> None:
    """Fact: a watcher that re-lists (here: goes on from its last version) loses none."""
    ours.post(KNOBS, {"do": "set", "watch_events": 3})
    version, seen = version_of(ours), []
    for number in range(8):
        ours.post(PODS, pod(f"p{number}"))
    for expected, query in ((3, {}), (3, {}), (2, {"timeoutSeconds": 1})):
        with ours.watch(PODS, resourceVersion=version, **query) as events:
            told = list(events)
        assert len(told) == expected
        seen += [each["object"]["metadata"]["name"] for each in told]
        version = told[-1]["object"]["metadata"]["resourceVersion"]
    assert seen == [f"p{number}" for number in range(8)]


def test_a_slow_reader_is_cut_off(running: ServerThread, ours: Api) -> None:
    """Fact: "Forcing pods watcher close due to unresponsiveness": a watch whose reader is behind ends early."""
    running.server.faults.watch_room = 5
    version = version_of(ours)
    with ours.watch(PODS, resourceVersion=version, timeoutSeconds=5) as events:
        create = running.server.objects.create
        pods = running.server.objects.catalog.find("", "v1", "pods")
        running.call(lambda: [create(pods, "default", pod(f"p{n}")) for n in range(9)])
        told = list(events)
    assert [each["object"]["metadata"]["name"] for each in told] == [f"p{n}" for n in range(5)]


def test_a_list_from_a_cache_may_lag_and_its_watch_repeats(
    running: ServerThread, ours: Api
) -> None:
    """Convention: resourceVersion=0 may tell an older state; a watch from its version tells again what is known. A list
    without a version tells the present."""
    for name in "abc":
        ours.post(PODS, pod(name))
    running.server.faults.list_lag = 2
    now = ours.get(PODS).json()
    assert len(now["items"]) == 3
    old = ours.get(PODS, resourceVersion="0").json()
    assert [each["metadata"]["name"] for each in old["items"]] == ["a"]
    with ours.watch(PODS, resourceVersion=old["metadata"]["resourceVersion"]) as events:
        assert [each["object"]["metadata"]["name"] for each in islice(events, 2)] == ["b", "c"]
    recent = ours.get(PODS, resourceVersion=now["metadata"]["resourceVersion"]).json()
    assert len(recent["items"]) == 3


def test_one_resource_may_be_told_later_than_another(ours: Api) -> None:
    """Convention: order holds within a watch, not between watches: a claim that was made first is heard of second."""
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    version = version_of(ours)
    ours.post(KNOBS, {"do": "hold", "resource": "resourceclaims"})
    with (
        Api(ours.url) as other,
        other.watch(claims, resourceVersion=version) as late,
        ours.watch(PODS, resourceVersion=version) as early,
        ThreadPoolExecutor() as pool,
    ):
        heard = pool.submit(next, late)
        for name in "cd":
            ours.post(claims, claim(name))
        ours.post(PODS, pod("a"))
        assert next(early)["object"]["metadata"]["name"] == "a"
        assert not heard.done()
        ours.post(KNOBS, {"do": "release", "resource": "resourceclaims"})
        assert heard.result(90)["object"]["metadata"]["name"] == "c"
        assert next(late)["object"]["metadata"]["name"] == "d"


def test_knobs_are_turned_back(ours: Api) -> None:
    """A knob: clear; an unknown one is 400."""
    ours.post(KNOBS, {"do": "add", "verb": "list", "code": 500, "times": None})
    assert ours.get(PODS).status_code == 500
    ours.post(KNOBS, {"do": "clear"})
    assert ours.get(PODS).status_code == 200
    for unknown in ({"do": "explode"}, {"do": "set", "volume": 11}, {"do": "add", "volume": 11}):
        assert ours.post(KNOBS, unknown).status_code == 400
    assert ours.get(PODS).status_code == 200
