"""Pieces of a rank's output, each with its place and time, and the two forms in which they are sent.

As text each line has "[rank] " before it and, if wanted, its time; a single rank without times comes byte by byte as it
was written. As JSON there is an object per piece and line (`application/x-ndjson`): it says which bytes of which file a
piece is, so that a reader can go on exactly where it was.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, end) of a rank's log, and the time by which they were written, in seconds since 1970.

    notice: data is a sentence of gantree's own about these bytes.
    """

    attempt: int
    rank: int
    start: int
    end: int
    at: float
    data: bytes
    notice: bool = False


Form = Callable[[Piece], bytes]


def utc_stamp(at: float) -> str:
    """A moment as RFC 3339 has it, in UTC, to the millisecond."""
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def as_written(piece: Piece) -> bytes:
    """The bytes alone."""
    return piece.data


def as_lines(*, ranks: bool, times: bool) -> Form:
    """Whole lines, each after its rank and its time."""

    def form(piece: Piece) -> bytes:
        prefix = b"[%d] " % piece.rank if ranks else b""
        if times:
            prefix += utc_stamp(piece.at).encode() + b" "
        whole = piece.data.removesuffix(b"\n")
        return prefix + whole.replace(b"\n", b"\n" + prefix) + b"\n"

    return form


def as_json(piece: Piece) -> bytes:
    """One JSON object: text where the bytes are UTF-8, else base64."""
    row: dict[str, Any] = {
        "attempt": piece.attempt,
        "rank": piece.rank,
        "start": piece.start,
        "end": piece.end,
        "at": round(piece.at, 3),
    }
    if piece.notice:
        row["notice"] = True
    try:
        row["text"] = piece.data.decode()
    except UnicodeDecodeError:
        row["base64"] = base64.b64encode(piece.data).decode()
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def data_of(row: dict[str, Any]) -> bytes:
    """The bytes that `as_json` wrote down. Raises KeyError, TypeError and ValueError."""
    if "text" in row:
        return str(row["text"]).encode()
    return base64.b64decode(row["base64"], validate=True)
