"""Which replica has the beginning of a prompt in its cache: by what was sent where. `haproxy/prefixes.lua` is its twin.

The text of a prompt is taken in blocks; a key stands for a block and all before it. Replicas keep what they have
computed of a prompt in the same manner, so the longest known beginning saves the most work.
"""

from collections.abc import Sequence
from zlib import crc32

BLOCK = 256
"""Bytes of a block, some 64 tokens."""
MOST_BLOCKS = 64
MOST_KEYS = 100_000
"""Keys of one generation. Of the older ones those stay that are used."""


def prefix_keys(text: bytes) -> list[int]:
    """Return the key of each whole block, the shortest beginning first."""
    keys: list[int] = []
    key = 0
    for start in range(0, min(len(text), BLOCK * MOST_BLOCKS) - BLOCK + 1, BLOCK):
        key = crc32(b"%d:%s" % (key, text[start : start + BLOCK]))
        keys.append(key)
    return keys


class PrefixTable:
    """Which replica was sent which beginnings last. Two generations: the older one goes when the newer one is full."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._newer: dict[int, str] = {}
        self._older: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def replica(self, keys: Sequence[int]) -> str | None:
        """Return the replica that was sent the longest of these beginnings."""
        for key in reversed(keys):
            found = self._newer.get(key) or self._older.get(key)
            if found is not None:
                return found
        return None

    def record(self, keys: Sequence[int], replica: str) -> None:
        """Note that a prompt with these beginnings was sent to a replica."""
        if len(self._newer) + len(keys) > self._most_keys:
            self._older, self._newer = self._newer, {}
        for key in keys:
            self._newer[key] = replica
