"""Where the last lines of each rank begin, found without reading what is before them.

Files are read backwards, block by block, from the last attempt on until there are enough lines. The last lines of a
rank do not reach over a gap (`gaps`).
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from gantree.api.streams.logs.gaps import Gap, gap_of

TAIL_BLOCK_BYTES = 1 << 16


def tail_starts(
    path_of: Callable[[int, int], Path], attempts: Sequence[int], ranks: Sequence[int], lines: int
) -> dict[tuple[int, int], int]:
    """Where to begin so that each rank comes with its last lines; attempts before these are not in it.

    path_of(attempt, rank) is a file; attempts come in their order, and the last one is in it in any case.
    """
    starts: dict[tuple[int, int], int] = {}
    missing = dict.fromkeys(ranks, lines)
    for attempt in reversed(attempts):
        if starts and not any(missing.values()):
            break
        for rank in ranks:
            starts[attempt, rank], found = tail_start(path_of(attempt, rank), missing[rank])
            missing[rank] -= found
    return starts


def tail_start(path: Path, lines: int) -> tuple[int, int]:
    """The byte at which the last lines of a file begin, and how many these are; (0, 0) where there is no file yet."""
    try:
        with path.open("rb") as file:
            gap = gap_of(path) or Gap(0, 0)
            end = file.seek(0, os.SEEK_END)
            start, found = _tail_start(file, end, lines, min(gap.end, end))
            return (gap.start if start < gap.end else start), found
    except FileNotFoundError:
        return 0, 0


def _tail_start(file: BinaryIO, end: int, lines: int, least: int) -> tuple[int, int]:
    """As `tail_start`, of what is from least on; a place before least where that has fewer lines."""
    if not lines or not end:
        return end, 0
    at, found = end - 1, 0  # a line end there ends the last line, and none begins behind it
    while at > least:
        length = min(TAIL_BLOCK_BYTES, at - least)
        at -= length
        file.seek(at)
        block = file.read(length)
        ends = block.count(b"\n")
        if found + ends >= lines:
            place = len(block)
            for _ in range(lines - found):
                place = block.rfind(b"\n", 0, place)
            return at + place + 1, lines
        found += ends
    return (0, found + 1) if least == 0 else (least - 1, found)


def line_start(path: Path, offset: int) -> int:
    """The first place at or behind an offset at which a line begins; the offset itself where that is far away."""
    if offset == 0:
        return 0
    try:
        with path.open("rb") as file:
            file.seek(offset - 1)
            end = file.read(TAIL_BLOCK_BYTES).find(b"\n")
    except FileNotFoundError:
        return offset
    return offset if end < 0 else offset + end
