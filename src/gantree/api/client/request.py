"""A request to the daemon and how its answer is read. The requests of the API are in `requests`.

Standard library only: the command line must start fast.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

from gantree.api.client.decoding import decoded
from gantree.model.errors import Unreachable

Json = dict[str, Any]


Rows = list[Json]


T = TypeVar("T")


T_co = TypeVar("T_co", covariant=True)


LONGEST_WAIT_S = 300.0
"""How long one question may wait for a job."""


class Decoder(Protocol[T_co]):
    """Makes items of the bytes of a stream as they come."""

    def feed(self, chunk: bytes) -> Iterable[T_co]:
        """The items that are whole now."""
        ...


@dataclass(frozen=True)
class _Sent:
    """What is sent: path is a template, values fill it; headers and query entries that are None are left out."""

    method: str
    path: str
    values: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, object] = field(default_factory=dict)
    body: Json | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The path with its values, and the query."""
        path = self.path.format_map(
            {key: quote(text, safe="") for key, text in self.values.items()}
        )
        given = {key: value for key, value in self.query.items() if value is not None}
        return f"{path}?{urlencode(given, doseq=True)}" if given else path

    @property
    def content(self) -> bytes | None:
        """The body as it goes over the wire."""
        return None if self.body is None else json.dumps(self.body).encode()

    @property
    def is_harmless(self) -> bool:
        """Whether it may be sent twice: it only asks, or what it hands in is taken once."""
        return self.method == "GET" or self.headers.get("Idempotency-Key") is not None

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers that are given, and the content type where there is a body."""
        given = {key: value for key, value in self.headers.items() if value is not None}
        return given if self.body is None else {"Content-Type": "application/json", **given}


@dataclass(frozen=True)
class Request(_Sent, Generic[T]):
    """A request with one answer. wait_s: how long it asks the daemon to wait with it."""

    read: Callable[[Any], T] = lambda answer: answer
    wait_s: float = 0.0


@dataclass(frozen=True)
class Stream(_Sent, Generic[T]):
    """A request with a streamed answer."""

    decoder: Callable[[], Decoder[T]] = field(kw_only=True)


class Chunks:
    def feed(self, chunk: bytes) -> Iterable[bytes]:
        return (chunk,)


class JsonLines:
    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterable[Json]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [self._row(line) for line in lines]

    @staticmethod
    def _row(line: bytes) -> Json:
        """The value of a line that came whole. Raises Unreachable."""
        try:
            row: Json = decoded(line)
        except ValueError:
            raise Unreachable(
                f"the answer has a line that is no JSON ({line!r:.60}): the server is no gantree daemon"
            ) from None
        return row


class ServerSentEvents:
    """Events as the HTML standard frames them; comments (heartbeats) are dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterable[Json]:
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        lines = (line for block in blocks for line in block.split(b"\n"))
        return [decoded(line[5:]) for line in lines if line.startswith(b"data:")]


def rows_named(name: str) -> Callable[[Any], Rows]:
    """What reads the objects that an answer lists under a name."""

    def read(answer: Any) -> Rows:
        rows: Any = answer[name]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Unreachable(f"the answer lists no objects as {name!r}: no gantree daemon gave it")
        return list(rows)

    return read
