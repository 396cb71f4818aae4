"""The listeners of a daemon: the Unix socket always, a TCP address if configured; one server for each.

A server notes the transport of each request in its scope (`access.Transport`). What a client writes in headers
(X-Forwarded-For and its kin) is believed nowhere.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gantree.api.access.access import Transport, peer_uid
from gantree.api.http.web_sockets import WebSockets
from gantree.api.streams.exec_relay import MOST_BYTES
from gantree.model.errors import BadInput

LAST_ANSWERS_S = 1
"""Seconds that pending requests may take once the daemon stops."""
BACKLOG = 256
MOST_HEAD_BYTES = 64 * 1024
"""The line and the headers of a request; what comes with the last part of them is not counted."""
_ROOT_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Listen:
    """An address of TCP to answer at, how it is secured, and the file with the token that callers must show."""

    host: str
    port: int
    token_file: Path
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @property
    def scheme(self) -> str:
        """http or https."""
        return "http" if self.tls_cert is None else "https"


def listen_of(
    address: str,
    token_file: Path,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    *,
    insecure: bool = False,
) -> Listen:
    """What the options of `gantree up` ask for.

    Raises BadInput for what is no address, for an address that others can reach without TLS (unless insecure), and for
    a certificate that cannot be used.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3]) > 65535:
        raise BadInput(f"--listen: found {address!r}; allowed: HOST:PORT, [IPv6]:PORT")
    host = match[1] or match[2]
    if tls_cert is None and tls_key is not None:
        raise BadInput("--tls-key needs --tls-cert")
    if tls_cert is None and not insecure and not _is_loopback(host):
        raise BadInput(
            f"--listen {address}: others can reach it, and tokens would cross the network in the open;"
            " give it --tls-cert and --tls-key, or say --insecure"
        )
    if tls_cert is not None:
        _check_certificate(tls_cert, tls_key)
    return Listen(host, int(match[3]), token_file, tls_cert, tls_key)


def root_path_of(text: str) -> str:
    """The prefix that a proxy serves the daemon under, without a slash at its end. Raises BadInput for what is none."""
    if text and _ROOT_PATH.fullmatch(text) is None:
        raise BadInput(f"--root-path: found {text!r}; allowed: a path such as /gantree")
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_certificate(cert: Path, key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, FileNotFoundError) else error
        raise BadInput(f"--tls-cert {cert}, --tls-key {key}: {reason}") from error


def bind(listen: Listen) -> socket.socket:
    """Return a listening socket. Raises BadInput for an address that cannot be used."""
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise BadInput(f"--listen {listen.host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInput(f"--listen {listen.host}:{listen.port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def url_of(listen: Listen, listener: socket.socket) -> str:
    """The URL that a listener answers at, with the port that the system chose where none was."""
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{listen.scheme}://{host}:{listener.getsockname()[1]}"


def advertised(listen: Listen, listener: socket.socket) -> str:
    """The URL to tell others: with the name of this machine where the listener takes what comes to any address."""
    shown = replace(listen, host=gethostname()) if listen.host in ("0.0.0.0", "::") else listen  # noqa: S104 - looked for
    return url_of(shown, listener)


class _Http(HttpToolsProtocol):
    """HTTP with a limit on the line and the headers of a request, which the parser itself has not."""

    _in_head, _head_bytes = True, 0

    def data_received(self, data: bytes) -> None:
        """Read on, unless it never comes to the end of the headers."""
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response("The headers are too long.")
            return
        self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._in_head = False
        super().on_headers_complete()


class _OverSocket(_Http):
    """HTTP over the Unix socket: every request carries the user id of its peer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        peer = Transport("socket", peer_uid(transport.get_extra_info("socket")))
        self.app_state = {**self.app_state, "transport": peer}


class _OverTcp(_Http):
    """HTTP over TCP."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": Transport("tcp")}


class Server(uvicorn.Server):
    """A uvicorn server on one listening socket that leaves signals to the daemon."""

    def __init__(self, app: ASGIApp, listener: socket.socket, listen: Listen | None) -> None:
        """listen is what an address of TCP was asked for with; None for the Unix socket."""
        secured: dict[str, Any] = {}
        if listen is not None and listen.tls_cert is not None:
            secured = {"ssl_certfile": listen.tls_cert, "ssl_keyfile": listen.tls_key}
        config = uvicorn.Config(
            app,
            http=_OverSocket if listen is None else _OverTcp,
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

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the daemon's."""
        yield

    def serving(self) -> "asyncio.Task[None]":
        """The task that answers until `should_exit`."""
        return asyncio.create_task(self.serve(sockets=[self.listener]))
