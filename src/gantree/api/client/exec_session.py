"""The client's end of an exec session: one WebSocket to the daemon, over its socket or by its URL.

Apart from `client`, since it needs a library for WebSockets, imported on first use. docs/attach.md describes the
messages.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gantree.api.client.target import Target
from gantree.api.client.tls_socket import TwoWayTlsSocket
from gantree.api.http import unix_socket
from gantree.api.http.problems import error_of, problem_in
from gantree.model.errors import Conflict, GantreeError, Unreachable

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

CONNECT_WITHIN_S = 30.0
REFUSED = 4000
MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExecSession:
    """An open connection. send may be called beside receive, by another thread."""

    connection: "ClientConnection"
    target: Target
    held: ExitStack

    def send(self, letter: bytes, payload: bytes = b"") -> None:
        """Send input (i), its end (e), or a size (w). Raises what the daemon says once it has broken off."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - takes long; few commands attach

        try:
            self.connection.send(letter + payload)
        except ConnectionClosed as error:
            raise _broken_off(error, self.target) from error

    def receive(self) -> Iterator[tuple[bytes, bytes]]:
        """What comes: output (o), error output (r), the end (x). Raises what the daemon says instead of an end."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - as above

        try:
            for message in self.connection:
                if isinstance(message, bytes):
                    yield message[:1], message[1:]
        except ConnectionClosed as error:
            raise _broken_off(error, self.target) from error

    def close(self) -> None:
        """Close the session; its command ends."""
        self.held.close()


def open_exec_session(target: Target, job: str, request: dict[str, Any]) -> ExecSession:
    """Open a session: request has rank and command with terminal, or port. Raises what the daemon raises."""
    from websockets.exceptions import InvalidStatus, WebSocketException  # noqa: PLC0415 - as above
    from websockets.sync.client import connect  # noqa: PLC0415 - as above

    from gantree.api.client.closable_connection import ClosableConnection  # noqa: PLC0415 - as above

    path = f"/v1/jobs/{quote(job, safe='')}/attach"
    more: dict[str, Any] = {}
    held = ExitStack()
    if target.state_dir is not None:
        url = f"ws://localhost{path}"
    else:
        url = f"ws{target.url.removeprefix('http')}{path}"
        if target.scheme == "https":
            more["ssl"] = context = ssl.create_default_context()
            context.sslsocket_class = TwoWayTlsSocket
    try:
        if target.state_dir is not None:
            more["sock"] = unix_socket.connect(target.state_dir, CONNECT_WITHIN_S)
        opened = connect(
            url, additional_headers=target.headers, compression=None, max_size=MOST_BYTES, proxy=None,
            open_timeout=CONNECT_WITHIN_S, ping_timeout=None, close_timeout=1.0,
            create_connection=ClosableConnection, **more,
        )  # fmt: skip
        connection = held.enter_context(opened)
        connection.send(json.dumps(request))
    except InvalidStatus as error:
        status = error.response.status_code
        raise error_of(status, problem_in(bytes(error.response.body or b""))) from error
    except (OSError, WebSocketException) as error:
        raise target.unreachable(error) from error
    return ExecSession(connection, target, held)


def _broken_off(error: Any, target: Target) -> GantreeError:
    """What the close of a WebSocket says."""
    said = error.rcvd
    if said is None or not said.reason:
        return Unreachable(f"the daemon {target.name} broke off")
    if said.code == REFUSED:
        kind, _, sentence = said.reason.partition(": ")
        return error_of(0, {"title": kind, "detail": sentence})
    return Conflict(said.reason)
