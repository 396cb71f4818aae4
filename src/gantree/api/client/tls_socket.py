"""A TLS socket that one thread reads from while another one writes to it, as the library for WebSockets does.

OpenSSL keeps one state for both directions and is not to be called by two threads at once. What is written while it
reads a session ticket, which a server sends right after the handshake, is lost, and no error says so: a request that
nobody answers. So no call of OpenSSL waits here, and each has the socket to itself.
"""

import selectors
import ssl
import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, Self, TypeVar

T = TypeVar("T")


class TwoWayTlsSocket(ssl.SSLSocket):
    """Made by a context that has it as its `sslsocket_class`. A time limit holds for each call."""

    _within_s: float | None
    _alone: Lock

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """As any socket; the standard library makes it without calling `__init__`."""
        made = super().__new__(cls, *arguments, **named)
        made._within_s, made._alone = None, Lock()
        return made

    def settimeout(self, value: float | None) -> None:
        """Limit what is called from now on."""
        self._within_s = value
        super().setblocking(False)

    def gettimeout(self) -> float | None:
        """The limit."""
        return self._within_s

    def do_handshake(self, block: bool = False) -> None:
        """Wait for the handshake."""
        self._at_last(super().do_handshake)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Wait for data."""
        return self._at_last(partial(super().recv, buflen, flags))

    def send(self, data: Any, flags: int = 0) -> int:
        """Wait until some of it is taken."""
        return self._at_last(partial(super().send, data, flags))

    def _at_last(self, operation: Callable[[], T]) -> T:
        """What it comes to, once the socket is ready for it. Raises TimeoutError."""
        deadline = None if self._within_s is None else time.monotonic() + self._within_s
        while True:
            try:
                with self._alone:
                    return operation()
            except ssl.SSLWantReadError:
                self._wait(selectors.EVENT_READ, deadline)
            except ssl.SSLWantWriteError:
                self._wait(selectors.EVENT_WRITE, deadline)

    def _wait(self, event: int, deadline: float | None) -> None:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        with selectors.PollSelector() as ready:  # epoll never wakes for a socket that is closed
            ready.register(self, event)
            if not ready.select(left_s):
                raise TimeoutError("timed out")
