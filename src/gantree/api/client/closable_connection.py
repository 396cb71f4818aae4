"""A WebSocket that can be closed while a thread is reading from it.

Apart from `exec_session`, since it imports the library at once. Over TLS the library's reader can block in a read after
a session ticket or half a record came. Closing the socket does not wake it, and the library waits for it without limit,
so a client that gives up on a hanging daemon would hang too.

Nor does the library wait for the reader before it says that the stream has ended. A reader that holds the last piece of
a refusal then takes that for a bug of the library, and logs it.
"""

import socket
from contextlib import suppress
from threading import current_thread

from websockets.protocol import State
from websockets.sync.client import ClientConnection


class ClosableConnection(ClientConnection):
    """Ends both directions before the socket is closed, which wakes a thread that reads from it."""

    def close_socket(self) -> None:
        """As the library's, and its reader ends in any case."""
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        is_opening = self.protocol.state is State.CONNECTING  # no message can hold up the reader
        if is_opening and current_thread() is not self.recv_events_thread:
            self.recv_events_thread.join()
        super().close_socket()
