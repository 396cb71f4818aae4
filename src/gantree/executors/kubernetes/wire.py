"""HTTP/1.1 to one server, as little of it as an API server takes: requests over kept connections, answers whole or as
they come.

A binding for each pod is most of what a scheduler sends, so what a request costs here is what a pod costs. Nothing is
followed, cached, compressed or sent anew: an answer is what the server said, and a connection that breaks is an error
of whoever waits on it. Not here: what paths and bodies mean (`client`).
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

CONNECT_WITHIN_S = 5.0
KEEP = 64
"""Connections that are kept when nobody needs them."""
MUCH = 2**20
"""Bytes of a stream that may wait for their reader; the server has to wait then."""


class Broken(Exception):
    """The connection cannot be made, breaks, or carries no HTTP."""


@dataclass(slots=True)
class Answer:
    """What the server said. retry_after is the header of that name, as it came; body is empty while it is streamed."""

    status: int = 0
    retry_after: str = ""
    body: bytes = b""


class Wire:
    """All connections to a server; to be built and used inside one event loop."""

    def __init__(self, server: str, context: ssl.SSLContext | None) -> None:
        """server is its URL, perhaps with a path that comes before all others."""
        parts = urlsplit(server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = context
        self._prefix = parts.path.rstrip("/")
        self._host_line = f"Host: {parts.netloc.rpartition('@')[2]}\r\n"
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def ask(
        self, method: str, path: str, headers: str, body: bytes, within_s: float
    ) -> Answer:
        """One request and its whole answer. headers are lines that end with CRLF. Raises Broken, TimeoutError."""
        connection = self._idle.pop() if self._idle else await self._connect()
        done = connection.begin(self._request(method, path, headers, body), is_stream=False)
        late = asyncio.get_running_loop().call_later(within_s, connection.give_up)
        try:
            await done
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            late.cancel()
        answer = connection.answer
        self._keep(connection)
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, headers: str, silent_s: float
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """A GET whose answer is read as it comes; one that says nothing for so long is broken. Raises Broken."""
        connection = await self._connect()
        try:
            begun = connection.begin(self._request("GET", path, headers, b""), is_stream=True)
            async with asyncio.timeout(silent_s):
                await begun
            yield connection.answer, connection.chunks(silent_s)
        finally:
            connection.close()

    def close(self) -> None:
        """Let go of all connections; who waits for an answer is told that it broke."""
        for connection in tuple(self._open):
            connection.close()

    def _request(self, method: str, path: str, headers: str, body: bytes) -> bytes:
        length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
        head = f"{method} {self._prefix}/{path} HTTP/1.1\r\n{self._host_line}{headers}{length}\r\n"
        return head.encode("latin-1") + body

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        name = self._host if self._context is not None else None
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._forget),
                    self._host,
                    self._port,
                    ssl=self._context,
                    server_hostname=name,
                )
        except TimeoutError:
            raise Broken(f"no connection within {CONNECT_WITHIN_S:g} s") from None
        except OSError as error:
            raise Broken(str(error) or type(error).__name__) from error
        self._open.add(connection)
        return connection

    def _keep(self, connection: "_Connection") -> None:
        if connection.may_be_kept and len(self._idle) < KEEP:
            self._idle.append(connection)
        else:
            connection.close()

    def _forget(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, forget: Callable[["_Connection"], None]) -> None:
        self.answer = Answer()
        self._forget = forget
        self._parser = httptools.HttpResponseParser(self)
        self._done: asyncio.Future[None] | None = None
        self._parts: deque[bytes] = deque()
        self._waiting = 0
        self._news = asyncio.Event()
        self._is_stream = self._is_whole = self._is_kept_open = False
        self._is_lost = self._is_paused = False

    def begin(self, request: bytes, *, is_stream: bool) -> "asyncio.Future[None]":
        """Send a request; done when its answer is whole, or, of a stream, when its status is known."""
        self.answer, self._is_stream = Answer(), is_stream
        self._is_whole = self._is_kept_open = False
        self._parts.clear()
        self._done = asyncio.get_running_loop().create_future()
        if self._is_lost:
            self._break("the connection was closed")
        else:
            self._transport.write(request)
        return self._done

    @property
    def may_be_kept(self) -> bool:
        """Whether another request may be sent here."""
        return self._is_kept_open and not self._is_lost

    async def chunks(self, silent_s: float) -> AsyncIterator[bytes]:
        """The body of a stream, to its end. Raises Broken, TimeoutError for a long silence."""
        while True:
            while self._parts:
                chunk = self._parts.popleft()
                self._waiting -= len(chunk)
                if self._is_paused and self._waiting < MUCH:
                    self._is_paused = False
                    self._transport.resume_reading()
                yield chunk
            if self._is_whole:
                return
            if self._is_lost:
                raise Broken("the connection broke")
            self._news.clear()
            async with asyncio.timeout(silent_s):
                await self._news.wait()

    def give_up(self) -> None:
        """The answer took too long."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(TimeoutError("no answer in time"))
        self.close()

    def close(self) -> None:
        """Let go of it."""
        self._is_lost = True
        self._forget(self)
        self._transport.abort()

    # ----- what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class

    def data_received(self, data: bytes) -> None:
        """A part of an answer, or several."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"that is no HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over; whoever waits hears of it."""
        self._is_lost = True
        self._break(str(exc) if exc else "the server closed the connection")
        self._news.set()
        self._forget(self)

    # ----- what the parser says

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if name.lower() == b"retry-after":
            self.answer.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The status is known."""
        self.answer.status = self._parser.get_status_code()
        if self._is_stream:
            self._finish()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._parts.append(body)
        if self._is_stream:
            self._waiting += len(body)
            self._news.set()
            if self._waiting > MUCH and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is whole. What is said before it (100 Continue) is passed over."""
        if self.answer.status < 200:
            return
        self._is_whole = True
        self._is_kept_open = self._parser.should_keep_alive()
        self._news.set()
        if not self._is_stream:
            parts = self._parts
            self.answer.body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _break(self, why: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(Broken(why))
