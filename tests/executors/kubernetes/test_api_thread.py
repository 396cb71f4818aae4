"""What the link and those that remember pods do when the other side, or their own thread, is not as it should be."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.core.ledger.ledger import Ledger
from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.client import Client, Gone, Listed, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Metadata, Pod
from gantree.executors.kubernetes.apiserver.reflector import Reflector
from gantree.executors.kubernetes.controllers import gang_admission as reception
from gantree.executors.kubernetes.controllers import nodes
from gantree.executors.kubernetes.nodes.site import SiteReading, site_of
from gantree.executors.kubernetes.watch import api_thread as link_module
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.writes.patches import annotate
from gantree.executors.kubernetes.writes.pod_status import PodStatusUpdates, WaitReason
from gantree.executors.kubernetes.writes.writes import Binding
from gantree.journal.encoding import codec
from gantree.model.errors import Unreachable
from support.kubernetes.samples import pod
from support.kubernetes.server.access import Access, Grant, User
from support.kubernetes.server.server import Settings
from support.kubernetes.server.thread import Api, ServerThread
from support.pods import PodStage

KEY = ("default", "g", "gang")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


class _EndsAtOnce:
    """A server whose watches end at once, in one way or another."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.watches = error, 0

    async def revision(self, resource: Resource[Any]) -> str:
        return "1"

    async def list(self, resource: Resource[Any]) -> Listed[Any]:
        return Listed([], frozenset(), "1")

    async def watch(self, resource: Resource[Any], version: str) -> Any:
        self.watches += 1
        assert self.watches < 99, "asked for again and again without a pause"
        if self.error is not None:
            raise self.error
        return
        yield


@pytest.mark.parametrize("error", [None, Gone(410, "Expired", "too old")])
def test_watches_that_end_at_once_are_not_asked_for_in_a_tight_loop(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await really_sleep(0)
        if len(pauses) == 9:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    server: Any = _EndsAtOnce(error)
    reflector = Reflector(server, Resource("api/v1/pods", Pod), lambda key, before, after: None)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(reflector.run(), 10.0))
    assert server.watches == len(pauses)
    assert pauses[-1] > 10 * pauses[0]


def test_who_leads_no_more_writes_nothing_that_was_begun_before() -> None:
    """The server puts a write off; when its time has come another process leads."""
    answers = [True, False]

    async def create(url: str) -> None:
        client = Client(Connection(url), lambda: answers.pop(0))
        try:
            body = {"metadata": {"name": "late"}}
            await client.write("POST", "api/v1/namespaces", body)
        finally:
            await client.close()

    with ServerThread() as running:
        fault = running.call(lambda: running.server.faults.add(verb="create", code=429))
        with pytest.raises(Unreachable, match="leads by now"):
            asyncio.run(create(running.url))
        assert (fault.met, answers) == (1, [])


def test_a_patch_for_a_pod_that_was_replaced_changes_nothing() -> None:
    async def annotated(url: str, uid: str) -> str:
        client = Client(Connection(url))
        try:
            return await annotate(
                client, Metadata(name="p", namespace="default", uid=uid), {"a": "b"}
            )
        finally:
            await client.close()

    with ServerThread() as running, Api(running.url) as api:
        path = "/api/v1/namespaces/default/pods"
        uid = api.post(path, pod("p")).json()["metadata"]["uid"]
        assert asyncio.run(annotated(running.url, "00000000-0000-0000-0000-000000000000")) == ""
        assert "annotations" not in api.get(f"{path}/p").json()["metadata"]
        assert asyncio.run(annotated(running.url, uid)) == ""
        assert api.get(f"{path}/p").json()["metadata"]["annotations"] == {"a": "b"}


def test_a_link_that_was_never_started_or_is_dead_can_be_closed() -> None:
    with ServerThread() as running:
        never = ApiThread(Connection(running.url), lambda: None)
        never.close()
        dead = ApiThread(Connection(running.url), lambda: None)
        dead.start()
        dead._thread.loop.call_soon_threadsafe(dead._thread.loop.stop)
        dead._thread._thread.join(90.0)
        dead.close()
        dead.close()


def _unstarted(wakes: list[int]) -> ApiThread:
    """A link whose loop a test runs; each wake notes how much was seen by then."""
    api: ApiThread = ApiThread(
        Connection("http://127.0.0.1:1"), lambda: wakes.append(len(api.seen))
    )
    return api


async def _seen_by(api: ApiThread, count: int, pause: Callable[[], Awaitable[None]]) -> None:
    for number in range(count):
        api._report(("pod", ("d", str(number)), None, None))
        await pause()


def test_under_load_it_wakes_once_in_a_while_and_after_a_pause_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def turn() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    wakes: list[int] = []
    monkeypatch.setattr(link_module, "PACE_S", 3600.0)
    api = _unstarted(wakes)
    api._thread.loop.run_until_complete(_seen_by(api, 50, turn))
    assert wakes == [1]
    api._thread.loop.close()
    monkeypatch.setattr(link_module, "PACE_S", 0.0)
    api = _unstarted(wakes)
    api._thread.loop.run_until_complete(_seen_by(api, 3, turn))
    assert wakes == [1, 1, 2, 3]
    api._thread.loop.close()


def test_nothing_is_seen_that_no_wake_follows() -> None:
    wakes: list[int] = []
    api = _unstarted(wakes)

    async def all_told() -> None:
        await _seen_by(api, 9, lambda: asyncio.sleep(0.002))
        while not wakes or wakes[-1] < 9:
            await asyncio.sleep(0.001)

    api._thread.loop.run_until_complete(asyncio.wait_for(all_told(), 10.0))
    api._thread.loop.close()


def test_kinds_that_it_may_not_list_are_passed_over_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reads = ("get", "list", "watch")
    rules = (Grant(reads, ("", "storage.k8s.io", "batch"), ("*",)),)
    access = Access({"old": User("old", rules)})
    with ServerThread(Settings(access=access)) as running:
        api = ApiThread(Connection(running.url, ask_token=lambda: ("old", 99.0)), lambda: None)
        api.start()
        seen = {kind.plural for kind in api._watched.versions}
        api.close()
    assert seen == {"jobs"}
    assert any("podgroups of scheduling.k8s.io are not seen" in each for each in caplog.messages)


def test_what_breaks_while_pods_are_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*told: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("gantree.executors.kubernetes.watch.api_writes.bind_all", broken)
    with ServerThread() as running:
        api = ApiThread(Connection(running.url), lambda: None)
        api.start()
        api.bind("j", 1, [Binding("default", "p", "u", "n0", {})])
        api._thread.run(asyncio.sleep(0.05)).result(10.0)
        api.close()
    assert [(noun, str(bug)) for noun, bug, _, _ in api.seen if noun == "broken"] == [
        ("broken", "a bug")
    ]


def nothing_remains(job: str) -> str:
    """No attempt is kept from ending."""
    return ""


def test_a_gang_that_waits_again_and_again_has_one_turn_to_be_told() -> None:
    telling = PodStatusUpdates(lambda key, reason_to_wait, has_event: None, nothing_remains)
    for now in range(9):
        telling.add(KEY, float(now), 1)
        telling.remove(KEY)
    telling.add(KEY, 9.0, 1)
    assert len(telling._undecided) == 1
    telling.remove(KEY)
    assert list(telling.step(LedgerView(Ledger()), lambda key: None, 99.0)) == []
    telling.add(KEY, 99.0, 1)
    assert len(telling._undecided) == 1


def test_a_reason_with_other_numbers_is_no_new_event() -> None:
    written: list[tuple[str, bool]] = []
    telling = PodStatusUpdates(
        lambda key, reason, is_new: written.append((reason.sentence, is_new)), nothing_remains
    )
    telling.add(KEY, 0.0, 1)
    for free in ("needs 6 GPUs; 4 are free.", "needs 6 GPUs; 3.5 are free.", "needs a node."):
        telling.report(KEY, WaitReason("NoMatchingFlavor", free))
    assert [is_new for _, is_new in written] == [True, False, True]
    telling.report(KEY, WaitReason("PendingEvaluation", "needs a node."))
    assert written[-1] == ("needs a node.", True)


def gangs(stage: PodStage) -> dict[Any, Any]:
    cluster: Any = stage.controller.cluster
    found: dict[Any, Any] = cluster._pending.gangs
    return found


def test_a_gang_that_goes_before_it_is_whole_is_forgotten(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    stage.pod("g-0", labels={"gantree.io/gang": "g", "gantree.io/gang-size": "2"})
    stage.until(lambda: bool(gangs(stage)))
    stage.api.delete("/api/v1/namespaces/default/pods/g-0")
    stage.until(lambda: not gangs(stage))


def test_a_pod_whose_label_changes_leaves_its_gang(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    labels = {"gantree.io/gang": "a", "gantree.io/gang-size": "2"}
    stage.pod("p0", labels=labels)
    stage.until(lambda: bool(gangs(stage)))
    path = "/api/v1/namespaces/default/pods/p0"
    stage.api.patch(path, {"metadata": {"labels": {"gantree.io/gang": "b"}}})
    stage.until(lambda: [key[1] for key in gangs(stage)] == ["b"])
    stage.pod("p1", labels=labels)
    stage.until(lambda: len(gangs(stage)) == 2)
    assert not stage.bound("p1")
    stage.pod("p2", labels=labels)
    stage.until(lambda: stage.bound("p1", "p2"))
    assert not stage.bound("p0")


def test_others_that_went_while_nobody_looked_are_not_counted(stage: PodStage) -> None:
    """Those of a node that went too are forgotten with it."""
    stage.nodes("n[0-1]")
    for node in ("n0", "n1"):
        stage.pod(f"on-{node}", gpus=6, spec={"schedulerName": "other", "nodeName": node})
    stage.start()
    stage.until(lambda: len(stage.controller.ledger.site.others) == 2)
    stage.stop()
    for node in ("n0", "n1"):
        stage.api.delete(f"/api/v1/namespaces/default/pods/on-{node}", {"gracePeriodSeconds": 0})
    stage.api.delete("/api/v1/nodes/n1")
    stage.start()
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.bound("p0"))
    assert not stage.controller.ledger.site.others


def test_a_start_makes_the_site_once(stage: PodStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are seen before there is a controller, and told again to it."""
    made: list[str] = []

    def counted(name: str, *told: Any) -> SiteReading:
        made.append(name)
        return site_of(name, *told)

    monkeypatch.setattr(nodes, "SETTLE_S", 0.0)
    monkeypatch.setattr(nodes, "LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(nodes, "site_of", counted)
    stage.nodes("n[0-1]")
    stage.start()
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.bound("p0"))
    assert len(made) == 1
    stage.nodes("n2")
    stage.until(lambda: len(made) > 1)


def seen(stage: PodStage, count: int) -> None:
    """Wait until changes of so many pods were watched and not taken yet."""
    cluster: Any = stage.controller.cluster
    deadline = time.monotonic() + 300
    while sum(noun == "pod" for noun, *_ in cluster._api.seen) < count:
        assert time.monotonic() < deadline, "not seen"
        time.sleep(0.005)


def test_pods_that_come_while_the_job_of_those_before_ends_are_handed_in(stage: PodStage) -> None:
    """They are not turned down with a job that ends because its own pods are gone."""
    stage.nodes("n0")
    stage.start()
    labels = {"gantree.io/gang": "g"}
    stage.pod("too-large", gpus=99, labels=labels)
    stage.until(lambda: bool(stage.controller.ledger.jobs))
    for _ in range(9):
        stage.controller.step()
    stage.api.delete("/api/v1/namespaces/default/pods/too-large", {"gracePeriodSeconds": 0})
    seen(stage, 1)
    stage.controller.cluster.poll()
    stage.pod("p0", gpus=8, labels=labels)
    seen(stage, 1)
    stage.until(lambda: stage.bound("p0"))


def test_many_gangs_at_once_are_handed_in_in_several_steps(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first are bound while the next are looked at, and nobody has to wait for the next change."""
    monkeypatch.setattr(reception, "AT_ONCE", 2)
    woken: list[int] = []
    stage.nodes("n[0-4]")
    stage.start()
    cluster: Any = stage.controller.cluster
    for number in range(5):
        stage.pod(f"p{number}", gpus=8)
    seen(stage, 5)
    cluster._api.wake = lambda: woken.append(1)
    stage.controller.step()
    assert (len(stage.controller.ledger.jobs), len(woken) > 0) == (2, True)
    stage.until(lambda: stage.bound(*(f"p{number}" for number in range(5))))


def test_a_start_makes_ready_for_what_the_first_job_leaves_in_the_journal(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first pod waits until the schemas of its event, facts and order are made."""
    codecs: Any = (codec.EVENT_CODEC, codec.FACT_CODEC, codec.ORDER_CODEC)
    for each in codecs:
        monkeypatch.setattr(each, "_adapters", {})
    stage.nodes("n0")
    stage.start()
    kinds = {"JobSubmitted"}, {"JobAccepted", "GangPlaced"}, {"StartGang"}
    assert [set(each._adapters) & of for each, of in zip(codecs, kinds, strict=True)] == list(kinds)


def test_an_allocation_that_could_not_be_removed_is_decided_about_again(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    cluster: Any = stage.controller.cluster
    claim = ("default", "c")
    cluster._api.seen.append(("claim again", claim, None, None))
    cluster._apply_changes()
    assert claim in cluster._allocator._to_check


def test_a_pod_that_comes_to_a_gang_that_waits_is_told_too_without_a_new_event() -> None:
    written: list[bool] = []
    telling = PodStatusUpdates(lambda key, reason, is_new: written.append(is_new), nothing_remains)
    reason = WaitReason("NoMatchingFlavor", "needs a node.")
    for pods in (1, 2, 2, 1, 2):
        telling.add(KEY, 0.0, pods)
        telling.report(KEY, reason)
    assert written == [True, False, False]
