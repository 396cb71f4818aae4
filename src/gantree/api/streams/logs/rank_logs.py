"""Reads one rank's log file on and on, as pieces with their places and times.

Where lines are wanted, a piece has whole lines only: a last line without an end comes when it ends, or by `rest`. A
line longer than LONGEST_LINE_BYTES is cut there, always at the same places.

Where the middle of a large log was dropped, a notice says how much (`gaps`), and the output goes on with the next
whole line.
"""

import os
from pathlib import Path

from gantree.api.streams.logs.gaps import Gap, dropped, gap_of
from gantree.api.streams.logs.line_times import records_between
from gantree.api.streams.logs.pieces import Piece

CHUNK_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 17
LONGEST_PART_BYTES = 1 << 16
"""So much of a line whose begin was dropped is left out; what goes on longer has no lines."""
DELETED = b"gantree: the output of this attempt was deleted to make room\n"


class RankLog:
    """Reads on in one rank's log file, which need not be there yet. offset: bytes read so far."""

    def __init__(
        self, path: Path, attempt: int, rank: int, *, whole_lines: bool, offset: int = 0
    ) -> None:
        self._path = path
        self._attempt, self._rank = attempt, rank
        self._whole_lines = whole_lines
        self.offset = offset
        self._unfinished = b""
        self._is_in_line = self._is_behind_gap = False
        self._changed_at = 0.0

    def read_on(self, most_bytes: int = CHUNK_BYTES) -> list[Piece]:
        """What has been written since, in order: at most so much of it."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                new = file.read(most_bytes)
                self._changed_at = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return []
        gap = gap_of(self._path) if new else None
        if gap is not None and gap.overlaps(self.offset, len(new)):
            return self._over(gap, new)
        return self._taken(new)

    def rest(self) -> list[Piece]:
        """The last line, if it was never ended."""
        rest, self._unfinished = self._unfinished, b""
        return self._timed(self.offset - len(rest), rest)

    def deletion(self) -> list[Piece]:
        """A notice where the directory of the attempt was deleted (`executors.local.run_pruner`)."""
        folder = self._path.parent.parent
        try:
            at = folder.with_name(f"{folder.name}.deleted").stat().st_mtime
        except OSError:
            return []
        return [self._notice(self.offset, self.offset, at, DELETED)]

    def _notice(self, start: int, end: int, at: float, sentence: bytes) -> Piece:
        return Piece(self._attempt, self._rank, start, end, at, sentence, notice=True)

    def _over(self, gap: Gap, new: bytes) -> list[Piece]:
        """What is before a gap, and a notice that stands for the gap."""
        before = self._taken(new[: max(0, gap.start - self.offset)]) + self.rest()
        start, end = max(self.offset, gap.start), gap.end
        known = records_between(self._path, end - 1, end)
        sentence = (b"\n" if self._is_in_line else b"") + dropped(end - start)
        self.offset, self._is_behind_gap, self._is_in_line = end, True, False
        at = known[0][1] if known else self._changed_at
        return [*before, self._notice(start, end, at, sentence)]

    def _taken(self, new: bytes) -> list[Piece]:
        """Pieces of what was read; what is not given yet is kept."""
        start, data = self.offset - len(self._unfinished), self._unfinished + new
        self.offset += len(new)
        self._unfinished = b""
        if self._is_behind_gap and data:
            self._is_behind_gap = False
            begin = data.find(b"\n", 0, LONGEST_PART_BYTES) + 1
            start, data = start + begin, data[begin:]
        if not self._whole_lines:
            self._is_in_line = not data.endswith(b"\n") if data else self._is_in_line
            return self._timed(start, data)
        pieces: list[Piece] = []
        while _first_line_bytes(data) > LONGEST_LINE_BYTES:
            pieces += self._timed(start, data[:LONGEST_LINE_BYTES])
            start, data = start + LONGEST_LINE_BYTES, data[LONGEST_LINE_BYTES:]
        whole = data.rfind(b"\n") + 1
        self._unfinished = data[whole:]
        return pieces + self._timed(start, data[:whole])

    def _timed(self, start: int, data: bytes) -> list[Piece]:
        """Bytes from an offset on, cut at the lines where the known time changes."""
        if not data:
            return []
        end, done = start + len(data), 0
        pieces = []
        for size, at in [*records_between(self._path, start, end), (end, self._changed_at)]:
            to = _line_start(data, size - start)
            if to > done:
                piece = data[done:to]
                pieces.append(Piece(self._attempt, self._rank, start + done, start + to, at, piece))
                done = to
        return pieces


def _first_line_bytes(data: bytes) -> int:
    end = data.find(b"\n")
    return len(data) if end < 0 else end


def _line_start(data: bytes, place: int) -> int:
    """The first place at or behind one at which a line begins, or the end."""
    if place >= len(data):
        return len(data)
    end = data.find(b"\n", place - 1) if place > 0 else -1
    return len(data) if end < 0 else end + 1
