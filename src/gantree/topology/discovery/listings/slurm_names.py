"""Hostlists as Slurm writes them (`n[08-11],r[0-1]c[0-3],login1`) to names, in the order written.

Order matters here: it is the place on a ring and in a torus. (`text.hostlists` is for files of ours: it takes one list
at a time, sorts it, and allows no name twice.) Topograph's compact ranges are the same.

A list is counted before it is expanded, and all lists of one source together may name `MAX_NAMES`, so that no text
becomes a large one. As in Slurm, the first number of a range sets the number of digits of all.
"""

import re

from gantree.text.records import Report
from gantree.text.words import WORD_PATTERN, shortened

MAX_NAMES = 200_000
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_WORD = re.compile(WORD_PATTERN, re.ASCII)
_MAX_BRACKETS = 8
_ALLOWED = "names or hostlists such as n[0-31],login1"
ALLOWED_NAMES = "names of at most 253 letters, digits, `.`, `_`, `:` and `-`"

Range = tuple[int, int, int]
"""First number, last number, digits."""


class BadNames(ValueError):
    """What is wrong with a hostlist: what was found, and what is allowed."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(found, allowed)
        self.found = found
        self.allowed = allowed


class Names:
    """Reads the hostlists of one kind of thing in one source, which together may name MAX_NAMES."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._left = MAX_NAMES

    def read(self, text: str, line: int | None, field: str) -> tuple[str, ...]:
        """Return the names in a text, or note the problem and return none."""
        try:
            names = expanded(text, self._left)
        except BadNames as bad:
            self._report.add(line, field, bad.found, bad.allowed)
            return ()
        self._left -= len(names)
        return names

    def one(self, text: str, line: int | None, field: str) -> str:
        """Return the one name that a text is, or note the problem and return ""."""
        names = self.read(text, line, field)
        if len(names) > 1:
            allowed = "one name; each has an entry of its own"
            self._report.add(line, field, f"`{shortened(text)}`", allowed)
        return names[0] if names else ""


def is_name(word: str) -> bool:
    """Return whether a word may be the name of a node or a domain."""
    return _WORD.fullmatch(word) is not None


def expanded(text: str, most: int = MAX_NAMES) -> tuple[str, ...]:
    """Return the names of a hostlist, in order. Raises BadNames, also where there are more than `most`."""
    if is_name(text) and most:
        return (text,)
    parts = [_parsed(part) for part in _parts(text)]
    if sum(count for _, _, count in parts) > most:
        raise BadNames(
            f"`{shortened(text)}`, which makes too many", f"{MAX_NAMES} names in a source"
        )
    names = tuple(
        name for words, ranges, count in parts if count for name in _product(words, ranges)
    )
    bad = next((name for name in names if not is_name(name)), None)
    if bad is not None:
        raise BadNames(f"the name `{shortened(bad)}`", ALLOWED_NAMES)
    return names


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise BadNames(f"`{shortened(text)}`", _ALLOWED)
        parts.append(match[0].strip())
        at = match.end()
        if at < len(text) and (text[at] != "," or at + 1 == len(text)):
            raise BadNames(f"`{shortened(text)}`", _ALLOWED)
        at += 1
    if not parts:
        raise BadNames("nothing", _ALLOWED)
    return parts


def _parsed(part: str) -> tuple[list[str], list[list[Range]], int]:
    """Return the words around the brackets of a part, what is in them, and how many names it makes."""
    pieces = _BRACKET.split(part)
    words, brackets = pieces[::2], pieces[1::2]
    if len(brackets) > _MAX_BRACKETS:
        raise BadNames(f"`{shortened(part)}`", f"at most {_MAX_BRACKETS} brackets")
    ranges = [[_range(piece, part) for piece in bracket.split(",")] for bracket in brackets]
    count = 1
    for bracket_ranges in ranges:
        count *= sum(last - first + 1 for first, last, _ in bracket_ranges)
    return words, ranges, count


def _range(text: str, part: str) -> Range:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise BadNames(f"`{shortened(part)}`", _ALLOWED)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise BadNames(
            f"`{shortened(part)}`, whose range runs backwards", "ranges that run upwards"
        )
    return first, last, len(match[1])


def _product(words: list[str], ranges: list[list[Range]]) -> list[str]:
    """Make the names; the last bracket varies fastest."""
    names = [words[0]]
    for bracket_ranges, word in zip(ranges, words[1:], strict=True):
        numbers = [
            f"{number:0{digits}d}"
            for first, last, digits in bracket_ranges
            for number in range(first, last + 1)
        ]
        names = [f"{name}{number}{word}" for name in names for number in numbers]
    return names
