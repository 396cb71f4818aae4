"""The whole application in this process, on its own controller: asked by callers of every role, no socket, no wait.

    with Front(tmp_path, ACCESS) as front:
        answer = front.ask("alice", "GET", "/v1/jobs")

An answer that goes on for ever is cut off at its head.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI

from gantree.api.access.access import Access, Transport
from gantree.api.access.access_file import AccessFile
from gantree.api.access.audit import Audit
from gantree.api.access.oidc import Providers
from gantree.api.access.tokens import Tokens, TokenSpec
from gantree.api.backend import Backend
from gantree.api.server.app import Pages, build_app
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.federation.leased_jobs import LeasedJobs
from gantree.journal.access_store import AccessStore
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.policy.rules import Policy
from support.recording import RecordingCluster
from support.type_adapters import share_type_adapters

DAEMON_TOKEN = "the-token-of-the-daemon"


@dataclass(frozen=True, slots=True)
class Told:
    """An answer. text is what of its body had come when it was cut off."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


class Front:
    """An application with users. Tokens are made for whoever asks; "" asks without one, "daemon" with the daemon's."""

    def __init__(
        self, place: Path, access_text: str, site: Cluster, policy: Policy, pages: Pages = ()
    ) -> None:
        self.access_file = place / "access.yaml"
        self.access_file.write_text(access_text)
        self._place, self._site, self._policy = place / "state", site, policy
        self._pages = pages
        self._runner = asyncio.Runner()
        self._secrets = {"daemon": DAEMON_TOKEN}

    def __enter__(self) -> Self:
        self._runner.run(self._begin())
        return self

    async def _begin(self) -> None:
        self.loop = Loop()
        journal = SqliteJournal(self._place)
        self.controller = await self.loop.call(lambda: self._made(journal))
        book = AccessStore(journal.database)
        self.file, self.tokens, self.audit = AccessFile(self.access_file), Tokens(book), Audit(book)
        providers = Providers(self.file)
        access = Access(DAEMON_TOKEN, None, self.file, self.tokens, providers)
        self.backend = Backend(self.loop, self.controller, 0.0)
        share_type_adapters()
        self.app: FastAPI = build_app(self.backend, access, self._pages, audit=self.audit)

    def _made(self, journal: SqliteJournal) -> Controller:
        made = Controller(
            journal,
            self._policy,
            RecordingCluster,
            site=self._site,
            wake=self.loop.wake,
            leased_jobs=LeasedJobs(self._place),
        )
        made.recover()
        return made

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._end())
        self._runner.close()

    async def _end(self) -> None:
        await self.loop.call(self.controller.close)
        self.loop.close()
        self.audit.close()

    def on_thread(self, work: Callable[[Controller], object]) -> None:
        """Do something on the controller's thread, and step."""

        async def done() -> None:
            await self.loop.call(lambda: work(self.controller))
            await self.loop.advance(self.controller)

        self._runner.run(done())

    def token(self, user: str, role: str = "", queue: str = "", *, good_s: float = 3600.0) -> str:
        """A new token of a user."""
        wanted = TokenSpec(user, role, queue, "test", self.tokens.now + good_s)
        return self._runner.run(self.tokens.issue(wanted)).secret

    def ask(
        self,
        user: str,
        method: str,
        url: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        uid: int | None = None,
        parts: int = 1000,
    ) -> Told:
        """One request of a user; token is what he shows in place of one of his own, uid makes him a peer of the socket.

        A body of bytes is sent as it is; headers may say of what kind.
        parts is how many parts of the body are waited for, of an answer that is no error.
        """
        if token is None and user:
            if user not in self._secrets:
                self._secrets[user] = self.token(user)
            token = self._secrets[user]
        sent = {"host": "gantree.test"}
        if token:
            sent["authorization"] = f"Bearer {token}"
        content = b"" if body is None else _content(body)
        if body is not None:
            sent |= {"content-type": "application/json", "content-length": str(len(content))}
        sent |= headers or {}
        scope = _scope(
            method, url, sent, Transport("tcp") if uid is None else Transport("socket", uid)
        )
        return self._runner.run(self._answered(scope, content, parts))

    async def _answered(self, scope: dict[str, Any], content: bytes, parts: int) -> Told:
        came: list[dict[str, Any]] = []
        enough = asyncio.Event()
        unread = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if unread:
                return unread.pop()
            await asyncio.Event().wait()
            raise AssertionError("unreachable: nothing more is sent")

        async def send(message: Any) -> None:
            came.append(message)
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if is_last or (came[0]["status"] < 400 and len(came) > parts):
                enough.set()

        work = asyncio.create_task(self.app(scope, receive, send))
        waiting = asyncio.create_task(enough.wait())
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, waiting):
            if not task.done():
                task.cancel()
        results = await asyncio.gather(work, return_exceptions=True)
        if not came:
            raise AssertionError(f"no answer: {results}")
        return _told(came)


def _content(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _scope(method: str, url: str, headers: Mapping[str, str], door: Transport) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(key.lower().encode(), value.encode()) for key, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("gantree.test", 80),
        "state": {"transport": door},
    }


def _told(came: list[dict[str, Any]]) -> Told:
    head = came[0]
    headers: dict[str, str] = {}
    for key, value in head["headers"]:
        name = key.decode().lower()
        text = value.decode("latin-1")
        headers[name] = f"{headers[name]}\n{text}" if name in headers else text
    return Told(head["status"], headers, b"".join(m.get("body", b"") for m in came[1:]).decode())
