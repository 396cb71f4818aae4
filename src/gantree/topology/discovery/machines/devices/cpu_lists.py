"""Lists of CPUs or NUMA nodes, "0-23,48", as Linux and drivers write them."""

import re

_LIST = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*")


def ranges(word: str | None) -> tuple[tuple[int, int], ...] | None:
    """Read "0-23,48" as ((0, 23), (48, 48)); None for N/A, for nothing, and for what is no list of ranges."""
    if word is None or not _LIST.fullmatch(word):
        return None
    parts = (part.partition("-") for part in word.split(","))
    found = tuple((int(first), int(last or first)) for first, _, last in parts)
    return found if all(first <= last for first, last in found) else None
