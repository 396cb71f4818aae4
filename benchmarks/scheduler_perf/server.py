"""Requests of a run: they must go well, and what they create has its namespace first."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from scheduler_perf.templates import CannotRun, Json
from support.kubernetes.client import Client

IN_FLIGHT = 50
TOTAL = "apiserver_request_total{"


def namespace_named(name: str) -> Json:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


class Server:
    """The API server of a run."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sent = 0
        self._namespaces = {"default"}
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    async def send(self, method: str, path: str, body: object = None) -> Json:
        """A request that must go well. Raises CannotRun."""
        self.sent += 1
        reply = await self.client.insist(method, path, body)
        if reply.code >= 400:
            raise CannotRun(f"{method} {path}: {reply.code} {reply.content.get('message', '')}")
        return reply.content

    async def requests(self) -> int:
        """How many requests others sent so far, as the server counts them; a watch counts when it ends."""
        text: str = (await self.client.insist("GET", "/metrics")).content.get("text", "")
        counts = (line for line in text.splitlines() if line.startswith(TOTAL))
        counted = sum(float(line.rpartition(" ")[2]) for line in counts)
        return int(counted) - self.sent

    async def send_all(self, requests: Sequence[Coroutine[Any, Any, Json]]) -> list[Json]:
        """All of them, IN_FLIGHT at a time."""
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(request: Coroutine[Any, Any, Json]) -> Json:
            async with gate:
                return await request

        return await asyncio.gather(*map(one, requests))

    async def create(self, content: Json, namespace: str) -> Json:
        """Create an object, in this namespace where it names none and has one."""
        where = content.get("metadata", {}).get("namespace", namespace)
        await self.ensure_namespace(where)
        return await self.send("POST", await self.collection(content, where), content)

    async def ensure_namespace(self, name: str, content: Json | None = None) -> None:
        """Create a namespace that is not there."""
        if name not in self._namespaces:
            self._namespaces.add(name)
            await self.send("POST", "/api/v1/namespaces", content or namespace_named(name))

    async def collection(self, content: Json, namespace: str) -> str:
        """The path under which objects of this kind are created."""
        version, kind = content["apiVersion"], content["kind"]
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._plurals:
            listed = await self.send("GET", root)
            for each in listed["resources"]:
                if "/" not in each["name"]:
                    self._plurals[version, each["kind"]] = (each["name"], each["namespaced"])
        if (version, kind) not in self._plurals:
            raise CannotRun(f"the server has no {kind} of {version}")
        plural, is_namespaced = self._plurals[version, kind]
        return f"{root}/namespaces/{namespace}/{plural}" if is_namespaced else f"{root}/{plural}"
