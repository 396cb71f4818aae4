"""A front of a real server, with the faults of ours: it refuses requests, loses answers, ends watches.

Whatever no fault meets is passed on, and its answer is passed back. To compact is to compact its etcd, after which its
watch cache still tells for a while what it has seen. What only ours can do to its own store (set back, lag behind) it
cannot.
"""

import asyncio
import base64
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import httpx
from aiohttp import web

from support.kubernetes.faults import Faults
from support.kubernetes.real import USERS
from support.kubernetes.server.paths import Target, target_of, verb_of
from support.kubernetes.server.server import refused, spoiled
from support.kubernetes.server.statuses import NoSuchPath, Refusal

KEPT_HEADERS = ("Authorization", "Content-Type", "Accept")


@dataclass(slots=True, eq=False)
class _Watch:
    """A watch that is passed on, until its server or a test ends it."""

    resource: str
    passing: "asyncio.Task[None]"
    is_ended: bool = False
    is_cut: bool = False


class Front:
    """On this event loop, from the beginning of a block to its end. It listens on 127.0.0.1."""

    def __init__(self, real_url: str, etcd_url: str) -> None:
        self.real_url, self.etcd_url = real_url, etcd_url
        self.faults = Faults(end_watches=self.end_watches, compact=self.compact)
        self.asked: Counter[tuple[str, str, str, str]] = Counter()
        """How often each user has asked for a verb of a resource of a group."""
        self._watches: set[_Watch] = set()

    async def __aenter__(self) -> Self:
        """Listen."""
        connector = aiohttp.TCPConnector(limit=0, ssl=False)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1_024).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all watches, then all connections."""
        self.end_watches()
        await self._runner.cleanup()
        await self._session.close()

    def end_watches(self, resource: str = "", cut: bool = False) -> int:
        """End the watches of a resource, or all; cut: by broken connections. Answers with how many."""
        ended = [each for each in self._watches if resource in {"", each.resource}]
        for each in ended:
            each.is_ended, each.is_cut = True, cut
            each.passing.cancel()
        return len(ended)

    def reset(self) -> int:
        """Break all connections, whatever is on its way. Answers with how many."""
        broken = [each.transport for each in self._server.connections if each.transport]
        for transport in broken:
            transport.abort()
        return len(broken)

    def compact(self) -> None:
        """Forget all changes up to now."""
        with httpx.Client(base_url=f"{self.etcd_url}/v3/kv") as etcd:
            any_key = base64.b64encode(b"/").decode()
            now = etcd.post("range", json={"key": any_key}).json()["header"]["revision"]
            etcd.post("compaction", json={"revision": now, "physical": True}).raise_for_status()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Where the real server does not answer, the connection breaks."""
        try:
            return await self._answered(request)
        except aiohttp.ClientError:
            if request.transport:
                request.transport.abort()
            return web.Response(status=502)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            target = target_of([step for step in request.path.split("/") if step])
            verb = verb_of(request.method, target, request.query)
        except (NoSuchPath, Refusal):
            return await self._passed(request)
        token = (request.headers.get("Authorization") or "").removeprefix("Bearer ")
        name, _ = USERS.get(token, ("", ""))
        self.asked[name, verb, target.group, target.full] += 1
        fault = self.faults.meet(verb, target.full, target.name)
        if fault and fault.code:
            return refused(fault.refusal())
        if verb == "watch":
            return await self._watched(request, target)
        answer = await self._passed(request)
        return await spoiled(request, answer, fault) if fault else answer

    def _ask(self, request: web.BaseRequest, body: bytes) -> Any:
        headers = {name: request.headers[name] for name in KEPT_HEADERS if name in request.headers}
        url = self.real_url + request.path_qs
        return self._session.request(request.method, url, data=body or None, headers=headers)

    async def _passed(self, request: web.BaseRequest) -> web.Response:
        async with self._ask(request, await request.read()) as told:
            headers = {"Content-Type": told.headers.get("Content-Type", "text/plain")}
            if "Retry-After" in told.headers:
                headers["Retry-After"] = told.headers["Retry-After"]
            return web.Response(body=await told.read(), status=told.status, headers=headers)

    async def _watched(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        async with self._ask(request, b"") as told:
            kind = {"Content-Type": told.headers.get("Content-Type", "application/json")}
            answer = web.StreamResponse(status=told.status, headers=kind)
            await answer.prepare(request)
            watch = _Watch(target.plural, asyncio.ensure_future(_pass_on(told, answer)))
            self._watches.add(watch)
            try:
                await watch.passing
            except asyncio.CancelledError:
                if not watch.is_ended:
                    raise
            finally:
                self._watches.discard(watch)
        if watch.is_cut and request.transport:
            request.transport.abort()
        return answer


async def _pass_on(told: aiohttp.ClientResponse, answer: web.StreamResponse) -> None:
    async for piece in told.content.iter_any():
        await answer.write(piece)
