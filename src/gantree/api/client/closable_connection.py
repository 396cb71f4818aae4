"""A WebSocket that can be closed while a thread waits for what the other side has not sent.

Beside `attaching`, since it needs the library at once. Over TLS the library's reader can be inside a read that nothing
but the other side ends: what came was no data but a session ticket, or half a record. Closing a socket does not wake
such a reader, and the library waits for it without a limit: who gave up on a daemon that hangs would hang with it.
"""

import socket
from contextlib import suppress

from websockets.sync.client import ClientConnection


class ClosableConnection(ClientConnection):
    """Ends both directions before the socket is closed, which wakes whoever reads from it."""

    def close_socket(self) -> None:
        """As the library's, and its reader ends in any case."""
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        super().close_socket()
