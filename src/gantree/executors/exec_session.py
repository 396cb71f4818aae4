"""A command that a user runs beside a process of a job, as control and the API see it."""

import socket
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Terminal:
    """The terminal of the user: the name in TERM, and the size in characters."""

    term: str
    rows: int
    columns: int


class PendingExecSession(Protocol):
    """A session that was requested; its process connects to the listener."""

    @property
    def listener(self) -> socket.socket:
        """The socket on which the process connects."""
        ...

    def accepts(self, connection: socket.socket) -> bool:
        """Whether the peer of a connection is the process of this session."""
        ...

    def close(self) -> None:
        """Stop waiting; a process that was not started yet never is."""
        ...
