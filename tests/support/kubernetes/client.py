"""An asynchronous client of any API server, for what lives beside the server in tests: the kubelet, the controllers.

It is deliberately not the client that gantree ships: what is tested does not vouch for itself.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from support.kubernetes.server.statuses import Json

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
AGAIN_S = 0.2
IN_FLIGHT = 32


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its code and what it says; of an answer that is no JSON, `text`."""

    code: int
    content: Json


class Client:
    """One user's connections to a server, from the beginning of a block to its end."""

    def __init__(self, url: str, token: str = "", is_checked: bool = True) -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.is_checked = is_checked

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self.is_checked)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self.headers
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        media_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request, whatever the answer."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": media_type}
        async with self._session.request(
            method, self.url + path, data=data, headers=headers, params=query
        ) as answer:
            said = await answer.read()
            is_json = answer.content_type == "application/json"
            content = msgspec.json.decode(said) if is_json else {"text": said.decode()}
            return Reply(answer.status, content)

    async def insist(
        self, method: str, path: str, body: object = None, media_type: str = "application/json"
    ) -> Reply:
        """One request, asked again for as long as the server is at fault: 429, 5xx, a broken connection."""
        while True:
            try:
                reply = await self.ask(method, path, body, media_type)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(AGAIN_S)
                continue
            if reply.code != 429 and reply.code < 500:
                return reply
            await asyncio.sleep(AGAIN_S)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Json]:
        """The events of one watch, to its end."""
        params = {"watch": "1", "allowWatchBookmarks": "true", **query}
        async with self._session.get(self.url + path, params=params, read_bufsize=2**22) as answer:
            if answer.status != 200:
                yield {"type": "ERROR", "object": msgspec.json.decode(await answer.read())}
                return
            async for line in answer.content:
                yield msgspec.json.decode(line)

    async def follow(self, path: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, Json]]:
        """(ADDED, MODIFIED or DELETED, object) for ever: lists, watches, goes on where a watch ended, lists again."""
        known: dict[str, Json] = {}
        while True:
            try:
                listed = await self.ask("GET", path, query=query)
                if listed.code == 200:
                    for kind, content in _news(known, listed.content["items"]):
                        yield kind, content
                    version = listed.content["metadata"]["resourceVersion"]
                    async for kind, content in self._follow_on(path, query, version, known):
                        yield kind, content
            except (aiohttp.ClientError, OSError, msgspec.DecodeError):
                pass
            await asyncio.sleep(AGAIN_S)

    async def _follow_on(
        self, path: str, query: Mapping[str, str], version: str, known: dict[str, Json]
    ) -> AsyncIterator[tuple[str, Json]]:
        """What comes after a list, over watch after watch, until a list is needed again."""
        while True:
            async for event in self.watch(path, {**query, "resourceVersion": version}):
                kind, content = event["type"], event["object"]
                if kind == "ERROR":
                    return
                version = content["metadata"]["resourceVersion"]
                if kind == "BOOKMARK":
                    continue
                _note(known, kind, content)
                yield kind, content


def _note(known: dict[str, Json], kind: str, content: Json) -> None:
    uid = content["metadata"]["uid"]
    if kind == "DELETED":
        known.pop(uid, None)
    else:
        known[uid] = content


def _news(known: dict[str, Json], listed: list[Json]) -> list[tuple[str, Json]]:
    """How a list differs from what was known; that is brought up to date."""
    uids = {each["metadata"]["uid"] for each in listed}
    news = [("DELETED", content) for uid, content in known.items() if uid not in uids]
    for each in listed:
        before = known.get(each["metadata"]["uid"])
        if (
            before is None
            or before["metadata"]["resourceVersion"] != each["metadata"]["resourceVersion"]
        ):
            news.append(("MODIFIED" if before else "ADDED", each))
    for kind, content in news:
        _note(known, kind, content)
    return news


def path_of(
    api_version: str, plural: str, namespace: str = "", name: str = "", part: str = ""
) -> str:
    """Where a resource, an object or a part of one is."""
    root = "/apis" if "/" in api_version else "/api"
    within = f"/namespaces/{namespace}" if namespace else ""
    below = "".join(f"/{step}" for step in (name, part) if step)
    return f"{root}/{api_version}{within}/{plural}{below}"
