"""A router in this process, with a real HAProxy and real replicas; its daemon is a table that the test changes.

async with routed(tmp_path) as router:
    await router.set(service("chat", [...]))
    answer = await router.get("/services/chat/x")
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gantree.model.errors import Unreachable
from gantree.routing.addresses import listening_socket, written_address
from gantree.routing.following import Source
from gantree.routing.haproxy.config import Settings
from gantree.routing.haproxy.proxies import Proxies
from gantree.routing.router import Router
from gantree.routing.table import RouteTable
from gantree.routing.table_file import Tenants
from support.replica import ReplicaProcess

WITHIN_S = 300.0
PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


def haproxy() -> str:
    """HAProxy, or the test is skipped."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path=PATH)
    if found is None:
        pytest.skip("no HAProxy here (package haproxy)")
    return found


def row(replica: ReplicaProcess, place: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A replica in a table."""
    told = {"replica": replica.name, "attempt": 1, "host": "127.0.0.1", "port": replica.port}
    return {**told, "place": list(place), "ready": True, "draining": False, **more}


def service(name: str, replicas: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A service in a table."""
    return {"service": name, "replicas": list(replicas), "wait_s": WITHIN_S, **more}


async def until(holds: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)
    raise AssertionError(what)


@dataclass
class Answer:
    """An answer of the router."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)

    @property
    def chosen(self) -> tuple[str, str]:
        """The replica and the reason."""
        replica, _, reason = self.headers["X-Gantree-Chosen"].partition("; ")
        return replica, reason


@dataclass
class Routed:
    """A router, its daemon, and a client."""

    url: str
    router: Router
    proxies: Proxies
    client: aiohttp.ClientSession
    reports: list[dict[str, Any]] = field(default_factory=list)
    is_lost: bool = False
    _table: dict[str, Any] = field(default_factory=lambda: {"version": "0", "services": []})
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _applied: str = ""

    async def fetch(self, after: str) -> Any:
        """The daemon's answer to GET /v1/routes."""
        async with self._changed:
            self._applied = after
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self.is_lost or self._table["version"] != after)
            if self.is_lost:
                raise Unreachable("the daemon is lost")
            return self._table

    async def post(self, report: Mapping[str, Any]) -> None:
        """The daemon's answer to POST /v1/routes/reports."""
        self.reports.append(dict(report))

    async def set(self, *services: Mapping[str, Any], **more: Any) -> None:
        """Change the table, and wait until all requests go by it."""
        async with asyncio.timeout(WITHIN_S), self._changed:
            version = str(int(self._table["version"]) + 1)
            self._table = {"version": version, "services": list(services), **more}
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._applied == version)

    async def lose_daemon(self) -> None:
        """Let no question be answered any more."""
        async with self._changed:
            self.is_lost = True
            self._changed.notify_all()

    async def get_direct(self, port: int, path: str) -> None:
        """Ask a replica itself."""
        async with self.client.get(f"http://127.0.0.1:{port}{path}") as answer:
            assert answer.status == 200

    async def get(self, path: str, **headers: str) -> Answer:
        """Ask the router."""
        return await self._asked("GET", path, headers)

    async def chat(self, model: str, content: str, **more: Any) -> Answer:
        """Ask as clients of OpenAI do: the model behind the messages."""
        body = {"messages": [{"role": "user", "content": content}], "model": model, **more}
        return await self._asked("POST", "/v1/chat/completions", {}, json=body)

    async def _asked(
        self, method: str, path: str, headers: Mapping[str, str], **more: Any
    ) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(method, self.url + path, headers=sent, **more) as answer:
            return Answer(answer.status, answer.headers, await answer.text())


@asynccontextmanager
async def routed(
    directory: Path,
    *,
    at: str = "",
    tenants: Tenants | None = None,
    places: tuple[tuple[str, str], ...] = (),
    bind: str = "",
    is_lost: bool = False,
    tokenizers: Path | None = None,
    cache_wait_s: float = WITHIN_S,
) -> AsyncIterator[Routed]:
    """A router that runs."""
    program = haproxy()
    home = Path(tempfile.mkdtemp(prefix="router-"))  # of a test it may be too long for a socket
    (directory / "router").symlink_to(home)
    listening = listening_socket("127.0.0.1:0", "--listen")
    settings = Settings(
        (), {listening.fileno(): bind}, at, tenants, places, explain=True, cache_wait_s=cache_wait_s
    )
    proxies = Proxies(program, home, settings)
    told: list[Routed] = []

    async def fetch(after: str) -> Any:
        return await told[0].fetch(after)

    async def post(report: Mapping[str, Any]) -> None:
        await told[0].post(report)

    source = Source(fetch, post)
    router = Router("r1", proxies, home, source, RouteTable(), explain=True, tokenizers=tokenizers)
    stop, ready = asyncio.Event(), asyncio.Event()
    connector = aiohttp.TCPConnector(limit=0, ssl=False)
    async with aiohttp.ClientSession(connector=connector) as client:
        scheme = "https" if bind else "http"
        url = f"{scheme}://{written_address(listening)}"
        told.append(Routed(url, router, proxies, client, is_lost=is_lost))
        running = asyncio.create_task(router.run(stop, 5.0, ready.set))
        starting = asyncio.create_task(ready.wait())
        await asyncio.wait([running, starting], return_when="FIRST_COMPLETED")
        if running.done():
            starting.cancel()
            running.result()
        try:
            yield told[0]
        finally:
            stop.set()
            await client.close()
            await running
            listening.close()
            shutil.rmtree(home)
