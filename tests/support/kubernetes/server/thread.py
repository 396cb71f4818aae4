"""A server on a thread of its own, for tests that read from top to bottom, and requests of an API server that wait.

with ServerThread() as running:
    api = Api(running.url)
    api.post("/api/v1/nodes", {"metadata": {"name": "n0"}})
    running.call(running.server.end_watches)
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from support.kubernetes.server.server import ApiServer, Settings
from support.kubernetes.server.statuses import Json

READY_WITHIN_S = 300.0
ANSWERS_WITHIN_S = 300.0
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own, from the beginning of a block to its end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(READY_WITHIN_S)
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine answers that runs on the thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(READY_WITHIN_S)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function answers that is called on the thread: every knob is turned there."""
        told: Future[T] = Future()

        def do() -> None:
            try:
                told.set_result(function(*arguments))
            except BaseException as error:
                told.set_exception(error)

        self._loop.call_soon_threadsafe(do)
        return told.result(READY_WITHIN_S)


class ServerThread(LoopThread):
    """The server and its event loop, from the beginning of a block to its end."""

    token = ""
    """Whoever shows none may do everything."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.server = ApiServer(settings or Settings())

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self.server.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self.server.__aexit__(None, None, None))
        super().__exit__(kind, error, trace)

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url


class Api:
    """Requests of an API server on this machine, whose certificate is its own. An answer is as it came."""

    def __init__(self, url: str, token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url
        self.http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=ANSWERS_WITHIN_S,
            verify=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()

    def get(self, path: str, **query: Any) -> httpx.Response:
        """GET."""
        return self.http.get(path, params=query)

    def post(self, path: str, body: Json, **query: Any) -> httpx.Response:
        """POST."""
        return self.http.post(path, json=body, params=query)

    def put(self, path: str, body: Json) -> httpx.Response:
        """PUT."""
        return self.http.put(path, json=body)

    def patch(self, path: str, body: Any, media_type: str = MERGE) -> httpx.Response:
        """PATCH, a merge patch if not said otherwise."""
        content = json.dumps(body).encode()
        return self.http.patch(path, content=content, headers={"Content-Type": media_type})

    def delete(self, path: str, body: Json | None = None, **query: Any) -> httpx.Response:
        """DELETE, with options in its body."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self.http.request("DELETE", path, content=content, params=query, headers=headers)

    def define(self, definition: Json) -> None:
        """Create a definition, and wait until what it defines is served. A group of Kubernetes' own is approved of."""
        metadata, spec = definition["metadata"], definition["spec"]
        if spec["group"].endswith((".k8s.io", ".kubernetes.io")):
            approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
            metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **approved}}
        answer = self.post(DEFINITIONS, {**definition, "metadata": metadata})
        assert answer.status_code == 201, answer.text
        for version in spec["versions"]:
            path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            self.until(path, lambda told: told.status_code == 200)

    def until(self, path: str, is_so: Callable[[httpx.Response], bool]) -> None:
        """Ask for what is at a path until the answer is as it should be."""
        ends_at = time.monotonic() + ANSWERS_WITHIN_S
        while not is_so(told := self.get(path)):
            assert time.monotonic() < ends_at, told.text
            time.sleep(0.02)

    @contextmanager
    def watch(self, path: str, **query: Any) -> Iterator[Iterator[Json]]:
        """The events of a watch, one by one, to the end of its stream."""
        params = {"watch": "1", **query}
        with self.http.stream("GET", path, params=params) as response:
            assert response.status_code == 200, response.read()
            yield (json.loads(line) for line in response.iter_lines())


@dataclass(frozen=True, slots=True)
class Site:
    """A server that a test asks, ours or a real one."""

    url: str
    api: Api
