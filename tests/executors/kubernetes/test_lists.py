"""How everything is listed at a start: kinds beside each other, and each page while the one before is read."""

import asyncio
import gc
import time
from collections import Counter
from typing import Any, ClassVar

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver import client as client_module
from gantree.executors.kubernetes.apiserver.client import Client, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Metadata, Object, Pod
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from support.kubernetes.server.thread import Api, ServerThread

WITHIN_S = 300.0
NAMES = [f"p{number}" for number in range(5)]


class _Slow(Object, frozen=True):
    """An object that is not read before the server was asked for the next page, or never is."""

    running: ClassVar[Any] = None
    pages: ClassVar[list[int]] = []
    metadata: Metadata

    def __post_init__(self) -> None:
        """The first of the first page waits; how many pages were asked for by then is noted."""
        if self.metadata.name != NAMES[0]:
            return
        deadline = time.monotonic() + WITHIN_S
        while _asked(self.running) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        self.pages.append(_asked(self.running))


def _asked(running: ServerThread) -> int:
    """How often configmaps were listed."""
    return running.server.asked["", "list", "", "configmaps"]


def test_a_page_comes_while_the_one_before_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE", 2)

    async def names(url: str) -> list[str]:
        client = Client(Connection(url))
        try:
            listed = await client.list(Resource("api/v1/configmaps", _Slow))
        finally:
            await client.close()
        return [each.metadata.name for each in listed.objects]

    with ServerThread() as running, Api(running.url) as api:
        for name in NAMES:
            api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
        _Slow.running = running
        assert asyncio.run(names(running.url)) == NAMES
        assert _Slow.pages == [2]
        assert _asked(running) == 3


def test_what_is_listed_costs_no_time_when_python_looks_for_garbage() -> None:
    """Of all that a start lists nothing is looked at, however long it lives."""
    told = {
        "metadata": {"name": "p", "labels": {"app": "x"}, "ownerReferences": [{"name": "r"}]},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    pod = msgspec.convert(told, Pod)
    made = (pod, pod.metadata, pod.spec, pod.status, *pod.spec.containers, *pod.status.conditions)
    assert [gc.is_tracked(each) for each in made] == [False] * 6


class _Counting(Client):
    """A client that counts how many of its questions about groups, and about versions, are open at once."""

    now: ClassVar[Counter[int]] = Counter()
    most: ClassVar[Counter[int]] = Counter()

    async def get(self, path: str, kind: type[Any]) -> Any:
        depth = path.count("/") if "resource.k8s.io" not in path else 0
        self.now[depth] += 1
        self.most[depth] = max(self.most[depth], self.now[depth])
        try:
            return await super().get(path, kind)
        finally:
            self.now[depth] -= 1


def test_what_a_server_has_is_asked_all_at_once() -> None:
    with ServerThread() as running:
        api = ApiThread(Connection(running.url), lambda: None, make_client=_Counting)
        api.start()
        there = {kind.plural for kind in api._watched.versions}
        api.close()
    assert {"podgroups", "jobs"} <= there
    assert _Counting.most[1] > 5, "groups"
    assert _Counting.most[2] == 3, "versions of the three kinds whose groups are there"
