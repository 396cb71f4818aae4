"""SQLite's write-ahead log as bytes: where its last whole transaction ends, and what a power cut leaves of it.

Format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log. A header of 32 bytes holds the page size and two
salts. Each frame has a header of 24 bytes, with the salts of its generation and, in the last frame of a transaction,
the number of pages of the database; then a page follows.
"""

import os
import struct
from pathlib import Path
from random import Random
from typing import NamedTuple

HEADER = 32
FRAME_HEADER = 24
SECTOR = 512
"""Bytes that a disk writes whole."""


class End(NamedTuple):
    """The end of what is synced: the salts of the log's generation, and a number of bytes."""

    salts: bytes
    size: int


NOTHING = End(b"", 0)


def end_of(log: Path, known: End) -> End:
    """Where the last whole transaction of a log ends. known: an earlier end of it, from which the search begins."""
    try:
        with log.open("rb", buffering=0) as file:
            header = file.read(HEADER)
            if len(header) < HEADER:
                return NOTHING
            (page_size,) = struct.unpack_from(">I", header, 8)
            salts = header[16:24]
            start = known.size if known.salts == salts else HEADER
            return End(salts, _last_commit(file.fileno(), start, page_size, salts))
    except FileNotFoundError:
        return NOTHING


def _last_commit(file: int, start: int, page_size: int, salts: bytes) -> int:
    end = at = start
    while True:
        frame = os.pread(file, FRAME_HEADER, at)
        if len(frame) < FRAME_HEADER or frame[8:16] != salts:
            return end
        at += FRAME_HEADER + page_size
        if frame[4:8] != b"\0\0\0\0":
            end = at


def after_power_cut(log: bytes, synced: End, lots: Random) -> tuple[bytes, bool]:
    """What of a log is on the disk after a power cut; and whether a transaction in it lacks its end.

    Of what was not synced nothing, all, or a torn piece may be there, and sectors of a piece may be missing.
    """
    same_generation = log[16:24] == synced.salts
    kept = synced.size if same_generation else 0
    unsynced = len(log) - kept
    fate = lots.random()
    if unsynced <= 0 or fate < 0.3:
        return log[:kept], False
    if fate < 0.5:
        return log, False
    torn = bytearray(log[: kept + lots.randrange(unsynced)])
    if fate < 0.75 and len(torn) - kept > SECTOR:
        at = kept + lots.randrange(len(torn) - kept - SECTOR)
        torn[at : at + SECTOR] = bytes(SECTOR)
    return bytes(torn), len(torn) > kept
