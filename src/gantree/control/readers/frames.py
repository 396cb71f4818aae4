"""Messages between the daemon and its reader: pickled values over a socket pair that no other process can reach.

Both ends are one program of one user, forked from one process. A GantreeError travels as such; any other error is a bug
in the query and travels as text.
"""

import pickle
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gantree.control.requests.read_view import ReadPoint
from gantree.journal.contract import Journal
from gantree.model.errors import BadFields, GantreeError, Problem
from gantree.policy.rules import Policy

NEWEST = sys.maxsize
"""A seq that no fact has: the query wants all that the journal has, and an old answer rather than none."""
LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class FollowJournal:
    """The first message to a reader: how to open the journal, and the policy where none is on record."""

    open_journal: Callable[[], Journal]
    otherwise: Policy


class QueryMode(StrEnum):
    """How a query runs: in the reader itself, or in a fork of it.

    ADAPTIVE: in the reader while queries of the same function are quick, else in a fork.
    """

    INLINE = "inline"
    FORKED = "forked"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True)
class Query:
    """A function of a module, and its arguments after the ReadView. asker: whose share of the forks it counts in."""

    number: int
    asker: str
    since: ReadPoint
    mode: QueryMode
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The first message of a reader: its process, and the newest fact that it has read."""

    pid: int
    seq: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A value as of a ReadPoint; the journal was read age_s before. took_s: processor seconds."""

    number: int
    value: Any
    at: ReadPoint
    age_s: float
    took_s: float


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """An error instead of a reply; number None: instead of all replies. kind None: a bug."""

    number: int | None
    kind: type[GantreeError] | None
    text: str
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, number: int | None, error: Exception) -> "QueryFailed":
        """The message for an error."""
        if isinstance(error, BadFields):
            return cls(number, BadFields, str(error), error.problems)
        if isinstance(error, GantreeError):
            return cls(number, type(error), str(error))
        return cls(number, None, f"{type(error).__name__}: {error}")

    def error(self) -> Exception:
        """The error again."""
        if self.kind is None:
            return RuntimeError(self.text)
        if self.kind is BadFields:
            return BadFields(self.problems)
        return self.kind(self.text)


def packed(message: object) -> bytes:
    """A message as it goes over the socket."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def unpacked(body: bytes) -> Any:
    """The message in a body, without the length before it."""
    return pickle.loads(body)  # noqa: S301 - both ends of the pair are ours; see above


class Frames:
    """Cuts what comes from a socket into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are whole now."""
        self._buffer += data
        found: list[Any] = []
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < LENGTH.size + length:
                break
            found.append(unpacked(bytes(self._buffer[LENGTH.size : LENGTH.size + length])))
            del self._buffer[: LENGTH.size + length]
        return found
