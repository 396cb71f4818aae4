"""Which lines of an output a reader wants: those with a pattern, evaluated here in bounded time.

The pattern is of RE2, which takes time proportional to the text whatever the pattern, and a bounded memory. All
searches of a daemon share one turn, a chunk at a time, and each pauses as long as its chunk took: so searches through
gigabytes leave the daemon to others.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import re2

from gantree.api.streams.logs.pieces import Piece
from gantree.model.errors import BadFields, Problem

LONGEST_PATTERN = 1000
_MOST_MEMORY_BYTES = 1 << 20
_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")


class LineSearch:
    """The lines with a pattern. turn: shared by all searches. Raises BadFields."""

    def __init__(self, pattern: str, turn: asyncio.Semaphore) -> None:
        self._search = _compiled(pattern)
        self._turn = turn

    async def read(self, read: Callable[[], list[Piece] | None]) -> list[Piece] | None:
        """What read returns, without the lines that do not match; None where it returns None."""
        async with self._turn:
            began_s = time.monotonic()
            found = await asyncio.to_thread(self._read, read)
            took_s = time.monotonic() - began_s
        await asyncio.sleep(took_s if found is not None else 0)
        return found

    def _read(self, read: Callable[[], list[Piece] | None]) -> list[Piece] | None:
        pieces = read()
        return None if pieces is None else self.matching(pieces)

    def matching(self, pieces: list[Piece]) -> list[Piece]:
        """The lines with the pattern, each a piece; notices stay."""
        return [line for piece in pieces for line in self._of(piece)]

    def _of(self, piece: Piece) -> Iterator[Piece]:
        if piece.notice:
            yield piece
            return
        start = piece.start
        for line in _lines(piece.data):
            text = line.removesuffix(b"\n")
            if self._search(_COLOURS.sub(b"", text) if b"\x1b" in text else text):
                yield Piece(piece.attempt, piece.rank, start, start + len(line), piece.at, line)
            start += len(line)


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _compiled(pattern: str) -> Callable[[bytes], Any]:
    options = re2.Options()
    options.max_mem = _MOST_MEMORY_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = (
            error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        )
        allowed = f"a regular expression of RE2 ({reason})"
        raise BadFields([Problem("request", None, "grep", repr(pattern)[:100], allowed)]) from None
    search: Callable[[bytes], Any] = compiled.search
    return search
