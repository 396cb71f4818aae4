"""HTTP/1.1 to one server, as little of it as an API server takes: requests over kept connections, answers whole or as
they come.

A binding for each pod is most of what a scheduler sends, so what a request costs here is what a pod costs: whoever does
not wait for its answer (`send`) needs no task, no future and no timer of its own. Nothing is followed, cached,
compressed or sent anew: an answer is what the server said, and a connection that breaks is an error of whoever waits on
it. Not here: what paths and bodies mean (`client`).
"""

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import httptools

CONNECT_WITHIN_S = 5.0
KEEP = 64
"""Idle connections that are kept."""
MUCH = 2**20
"""Bytes of a stream that may wait for their reader; the server has to wait then."""
LOOKS = 8
"""How often it is looked, while an answer may take, for those that take too long."""
_RETRY_AFTER = re.compile(rb"^retry-after:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_REFUSED = 400

OnAnswer = Callable[[Exception | None], None]
"""Told once that an answer is whole, or why it never will be: Broken, TimeoutError."""


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
        self._looking: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether there is an idle connection."""
        return bool(self._idle)

    def send(
        self,
        request: tuple[str, str, str, bytes],
        within_s: float,
        told: Callable[["Answer | Exception"], None],
    ) -> None:
        """A request (method, path, headers, body) that nobody waits for: `told` is called with its answer, or with
        Broken or TimeoutError. A connection must be ready. What takes too long is given up an eighth of that later at
        most.
        """
        connection = self._idle.pop()
        if self._looking is None:
            self._look_later(within_s)
        connection.begin(
            self._request(*request), partial(self._answered, connection, told), within_s=within_s
        )

    def _answered(
        self,
        connection: "_Connection",
        told: Callable[["Answer | Exception"], None],
        error: Exception | None,
    ) -> None:
        if error is not None:
            told(error)
            return
        answer = connection.answer
        self._keep(connection)
        told(answer)

    def _look_later(self, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(within_s / LOOKS, self._look, within_s)

    def _look(self, within_s: float) -> None:
        """Give up what takes too long."""
        self._looking, now = None, asyncio.get_running_loop().time()
        waiting = [each for each in self._open if each.late_at is not None]
        for connection in waiting:
            if connection.late_at is not None and connection.late_at <= now:
                connection.give_up()
        if waiting:
            self._look_later(within_s)

    async def request(
        self, method: str, path: str, headers: str, body: bytes, within_s: float
    ) -> Answer:
        """One request and its whole answer. headers are lines that end with CRLF. Raises Broken, TimeoutError."""
        connection = self._idle.pop() if self._idle else await self._connect()
        done = _future_of(connection, self._request(method, path, headers, body), is_stream=False)
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
        """Send a GET and stream its answer; it fails if nothing arrives within the timeout. Raises Broken."""
        connection = await self._connect()
        try:
            begun = _future_of(connection, self._request("GET", path, headers, b""), is_stream=True)
            async with asyncio.timeout(silent_s):
                await begun
            yield connection.answer, connection.chunks(silent_s)
        finally:
            connection.close()

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        if self._looking is not None:
            self._looking.cancel()
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
    """One connection: one request at a time. late_at: when it is given up, on the clock of the loop; None: not here."""

    def __init__(self, forget: Callable[["_Connection"], None]) -> None:
        self.answer = Answer()
        self.late_at: float | None = None
        self._forget = forget
        self._parser = httptools.HttpResponseParser(self)
        self._told: OnAnswer | None = None
        self._head = b""
        self._parts: deque[bytes] = deque()
        self._pending = 0
        self._node_events = asyncio.Event()
        self._is_stream = self._is_whole = self._is_kept_open = False
        self._is_lost = self._is_paused = False

    def begin(
        self,
        request: bytes,
        told: OnAnswer,
        *,
        is_stream: bool = False,
        within_s: float | None = None,
    ) -> None:
        """Send a request; the callback runs when its answer is complete, or, for a stream, when its status is known."""
        self.answer, self._is_stream, self._told = Answer(), is_stream, told
        self._is_whole = self._is_kept_open = False
        self._head = b""
        self._parts.clear()
        if within_s is not None:
            self.late_at = asyncio.get_running_loop().time() + within_s
        if self._is_lost:
            self._break("the connection was closed")
        else:
            self._transport.write(request)

    @property
    def may_be_kept(self) -> bool:
        """Whether another request may be sent here."""
        return self._is_kept_open and not self._is_lost

    async def chunks(self, silent_s: float) -> AsyncIterator[bytes]:
        """The body of a stream, to its end. Raises Broken, TimeoutError for a long silence."""
        while True:
            while self._parts:
                chunk = self._parts.popleft()
                self._pending -= len(chunk)
                if self._is_paused and self._pending < MUCH:
                    self._is_paused = False
                    self._transport.resume_reading()
                yield chunk
            if self._is_whole:
                return
            if self._is_lost:
                raise Broken("the connection broke")
            self._node_events.clear()
            async with asyncio.timeout(silent_s):
                await self._node_events.wait()

    def give_up(self) -> None:
        """The answer took too long."""
        self._tell(TimeoutError("no answer in time"))
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
        if not self.answer.status:
            self._head += data
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"that is no HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection and fail its pending request."""
        self._is_lost = True
        self._break(str(exc) if exc else "the server closed the connection")
        self._node_events.set()
        self._forget(self)

    # ----- what the parser says

    def on_headers_complete(self) -> None:
        """Handle the status line. Only one header is read, for refusals; there is no callback per header."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.answer.status = status
        if status >= _REFUSED and (said := _RETRY_AFTER.search(self._head)):
            self.answer.retry_after = said[1].decode("latin-1")
        if self._is_stream:
            self._tell(None)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._parts.append(body)
        if self._is_stream:
            self._pending += len(body)
            self._node_events.set()
            if self._pending > MUCH and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is whole. What is said before it (100 Continue) is passed over."""
        if not self.answer.status:
            return
        self._is_whole = True
        self._is_kept_open = self._parser.should_keep_alive()
        self._node_events.set()
        if not self._is_stream:
            parts = self._parts
            self.answer.body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._tell(None)

    def _break(self, why: str) -> None:
        self._tell(Broken(why))

    def _tell(self, error: Exception | None) -> None:
        """Once for each request."""
        told, self._told, self.late_at = self._told, None, None
        if told is not None:
            told(error)


def _future_of(
    connection: _Connection, request: bytes, *, is_stream: bool
) -> "asyncio.Future[None]":
    """A request as something that is waited for."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def told(error: Exception | None) -> None:
        if done.done():  # who waited was cancelled
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    connection.begin(request, told, is_stream=is_stream)
    return done
