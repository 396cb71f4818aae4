"""What the daemon and its reader say to each other: pickled values over a pair of sockets that nobody else can reach.

Both ends are one program of one user, forked from one process. Errors that are the caller's or the world's fault travel
as what they are; anything else is a bug of the question, told by its text.
"""

import pickle
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gantree.control.requests.read_view import Moment
from gantree.journal.contract import Journal
from gantree.model.errors import BadFields, GantreeError, Problem
from gantree.policy.rules import Policy

NEWEST = sys.maxsize
"""A seq that no fact has: the question wants all that the journal has, and an old answer rather than none."""
LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Follow:
    """The first word to a reader: how to open the journal for reading, and the policy where none is on record."""

    open_journal: Callable[[], Journal]
    otherwise: Policy


class Where(StrEnum):
    """Where an answer is worked out: by the reader itself, or in a process of its own.

    BY_PACE: by the reader for as long as questions of the same function are quick.
    """

    HERE = "here"
    APART = "apart"
    BY_PACE = "by pace"


@dataclass(frozen=True, slots=True)
class Question:
    """A function of a module, and what it gets after the Reading. asker: on whose account it is worked out apart."""

    number: int
    asker: str
    since: Moment
    where: Where
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The first word of a reader: its process, and the newest fact that it has read."""

    pid: int
    seq: int


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, as of a moment; the journal was looked at age_s before it. It took so long of a processor."""

    number: int
    value: Any
    at: Moment
    age_s: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An error instead of an answer; number None: instead of all answers. kind None: a bug."""

    number: int | None
    kind: type[GantreeError] | None
    text: str
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, number: int | None, error: Exception) -> "Failed":
        """What an error is on the way."""
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
