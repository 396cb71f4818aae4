"""The HTTP server of one listening socket: uvicorn, with an accept loop and time limits of its own.

uvicorn takes every connection and waits for ever for the first request on it. Here a connection counts against the
limits of its listener before it costs anything (`api.http.connections`), and ends where its request does not come. What
a client writes in headers (X-Forwarded-For and its kin) is believed nowhere.
"""

import asyncio
import json
import logging
import socket
import time
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from prometheus_client import Counter
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gantree.api.access.access import Transport, peer_uid
from gantree.api.http.connections import (
    STATE,
    Connection,
    ConnectionLimits,
    Connections,
    Phase,
)
from gantree.api.http.problems import MEDIA_TYPE
from gantree.api.http.web_sockets import WebSockets
from gantree.api.server.listeners import Listen
from gantree.api.streams.exec_relay import MOST_BYTES
from gantree.control.metrics.metrics import Metrics

LAST_ANSWERS_S = 1
"""Seconds that pending requests may take once the daemon stops."""
MOST_HEAD_BYTES = 64 * 1024
"""The line and the headers of a request; what comes with the last part of them is not counted."""
ACCEPT_AT_ONCE, ACCEPT_PAUSE_S = 4, 0.005
"""Connections that are accepted at once, and the pause where more wait: 800 a second, while requests are answered."""
PAUSE_S = 1.0
"""After there was no descriptor for a connection."""
IN_HEAD = frozenset({Phase.NEW, Phase.HEAD})
GOODBYE_WITHIN_S = 5.0
"""So long the end of TLS is waited for."""
LOOK_EVERY_S = 1.0
SAY_EVERY_S = 60.0
TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

log = logging.getLogger(__name__)


class _Http(HttpToolsProtocol):
    """HTTP that tells its connection how far it is, with a limit on the line and the headers of a request."""

    _head_bytes = 0

    @property
    def _connection(self) -> Connection:
        connection: Connection = self.app_state[STATE]
        return connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """It can be ended from now on."""
        self._connection.end, self._connection.expire = transport.abort, self._time_out
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._connection.release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless it never comes to the end of the headers."""
        connection = self._connection
        if connection.phase is Phase.IDLE:
            connection.enter(Phase.HEAD)
            self._head_bytes = 0
        if connection.phase in IN_HEAD and self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response("the headers are too long")
            return
        self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins. The time of the first one, and of one after a pause, runs already."""
        self._head_bytes = 0
        connection = self._connection
        if connection.phase is Phase.NEW:
            connection.phase = Phase.HEAD
        elif connection.phase is Phase.ANSWER:
            connection.enter(Phase.HEAD)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._connection.enter(Phase.BODY)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is there as a whole."""
        self._connection.enter(Phase.ANSWER)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """It is answered; another one may have begun."""
        if self._connection.phase is Phase.ANSWER and not self.pipeline:
            self._connection.enter(Phase.IDLE)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """A problem as any other; the parser says no more than that it is one (the longest URL has 64 KiB)."""
        body = json.dumps({"title": "Bad Request", "status": 400, "detail": msg}).encode()
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head.encode() + body)
        self.transport.close()

    def _time_out(self) -> None:
        """Say that a request came too slowly, and end; at once where that is said already, or nothing was asked."""
        if self._connection.phase in (Phase.HEAD, Phase.BODY) and not self.transport.is_closing():
            self.transport.write(TIMEOUT)
            self.transport.close()
        else:
            self.transport.abort()


class Server(uvicorn.Server):
    """A uvicorn server on one listening socket that leaves signals to the daemon."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        listen: Listen | None,
        limits: ConnectionLimits,
        metrics: Metrics,
    ) -> None:
        """listen is what an address of TCP was asked for with; None for the Unix socket."""
        secured: dict[str, Any] = {}
        if listen is not None and listen.tls_cert is not None:
            secured = {"ssl_certfile": listen.tls_cert, "ssl_keyfile": listen.tls_key}
        config = uvicorn.Config(
            app,
            http=_Http,
            log_config=None,  # its lines come through ours
            log_level="warning",
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=LAST_ANSWERS_S,
            ws=WebSockets,
            ws_max_size=MOST_BYTES,
            ws_per_message_deflate=False,
            ws_ping_timeout=None,  # who is slow to take what was sent is slow to answer, too
            **secured,
        )
        super().__init__(config)
        self.listener = listener
        self._acceptor = _Acceptor(
            self, listener, limits, metrics.connections_ended, is_tcp=listen is not None
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the daemon's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        self.servers = [self._acceptor]  # type: ignore[list-item]  # uvicorn closes it, and waits for that
        self._acceptor.open()
        self.started = True

    def serving(self) -> "asyncio.Task[None]":
        """The task that answers until `should_exit`."""
        return asyncio.create_task(self.serve(sockets=[self.listener]))


class _Acceptor:
    """Accepts the connections of a server within limits, and ends those that are too slow."""

    def __init__(
        self,
        server: Server,
        listener: socket.socket,
        limits: ConnectionLimits,
        ended: Counter,
        *,
        is_tcp: bool,
    ) -> None:
        self._server, self._listener, self._is_tcp = server, listener, is_tcp
        self._connections = Connections(limits)
        self._ended_metric, self._unsaid = ended, Tally[str]()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._say_at = 0.0

    def open(self) -> None:
        """Begin to accept."""
        self._listen()
        self._watch = asyncio.create_task(self._end_slow())

    def close(self) -> None:
        """Accept no more."""
        asyncio.get_running_loop().remove_reader(self._listener)
        for task in (*self._handshakes, self._watch):
            if task is not None:
                task.cancel()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for: uvicorn waits for the connections."""

    def _listen(self) -> None:
        if not self._server.should_exit:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Take connections that wait, a few at a time."""
        for _ in range(ACCEPT_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            accepted.setblocking(False)
            self._admit(accepted, address)
        self._listen_again_in(ACCEPT_PAUSE_S)

    def _pause(self, error: OSError) -> None:
        """Leave the waiting ones where they are for a while: the engine needs descriptors more."""
        self._listen_again_in(PAUSE_S)
        log.error("no connection is accepted for %g s: %s", PAUSE_S, error)

    def _listen_again_in(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        loop.call_later(pause_s, self._listen)

    def _admit(self, accepted: socket.socket, address: Any) -> None:
        uid = None if self._is_tcp else peer_uid(accepted)
        connection = self._connections.admit(str(address[0] if self._is_tcp else uid))
        if connection is None:
            accepted.close()
            return
        transport = Transport("tcp") if self._is_tcp else Transport("socket", uid)
        state = {"transport": transport, STATE: connection}
        task = asyncio.create_task(self._begin(accepted, connection, state))
        connection.end = connection.expire = task.cancel
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _begin(
        self, accepted: socket.socket, connection: Connection, state: dict[str, Any]
    ) -> None:
        """Hand a connection to its protocol, behind TLS where there is TLS."""
        config = self._server.config
        head_within_s = self._connections.limits.head_within_s
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Http(config, self._server.server_state, state),
                accepted,
                ssl=config.ssl,
                ssl_handshake_timeout=head_within_s if config.ssl else None,
                ssl_shutdown_timeout=GOODBYE_WITHIN_S if config.ssl else None,
            )
        except (
            OSError,
            asyncio.CancelledError,
        ):  # no TLS, or it gave way; the loop closes the socket
            connection.release()

    async def _end_slow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for connection in self._connections.overdue():
                self._connections.ended["timed out"] += 1
                connection.expire()
            self._count()
            self._say()

    def _count(self) -> None:
        """Count what was ended since the last time."""
        ended = self._connections.ended
        listener = "tcp" if self._is_tcp else "socket"
        for cause, number in ended.items():
            self._ended_metric.labels(listener, cause).inc(number)
        self._unsaid += ended
        ended.clear()

    def _say(self) -> None:
        """Say what was ended, at most once a minute."""
        if not self._unsaid or time.monotonic() < self._say_at:
            return
        self._say_at = time.monotonic() + SAY_EVERY_S
        limits = self._connections.limits
        log.warning(
            "connections over %s: %s (limits: %d at once, %d without credentials of one %s)",
            "TCP" if self._is_tcp else "the Unix socket",
            ", ".join(f"{number} {why}" for why, number in self._unsaid.items()),
            limits.most, limits.most_of_peer, "address" if self._is_tcp else "user",
        )  # fmt: skip
        self._unsaid.clear()
