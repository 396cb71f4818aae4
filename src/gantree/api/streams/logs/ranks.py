"""Ranks as a text: "0,3-7"."""

from gantree.model.errors import BadFields, Problem

ALLOWED = "ranks and ranges of them, with commas between: 0,3-7"
MOST_RANKS = 1 << 20


def ranks_of(text: str) -> tuple[int, ...]:
    """The ranks in a text, ascending, each once. Raises BadFields."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not _is_number(first) or not _is_number(last if dash else first):
            raise _wrong(text)
        numbers = range(int(first), int(last or first) + 1)
        if not numbers or numbers[-1] >= MOST_RANKS:
            raise _wrong(text)
        found.update(numbers)
    return tuple(sorted(found))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 8


def _wrong(text: str) -> BadFields:
    return BadFields([Problem("request", None, "ranks", repr(text)[:100], ALLOWED)])
