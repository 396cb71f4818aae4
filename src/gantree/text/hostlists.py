"""Hostlists (`n[0-31]`, `r[0-1]-n[00-11]`) to node names, and back.

A hostlist is checked and counted before it is expanded, and expanded only when the whole file is known to be small
enough: the library behind it would first build what it then refuses.
"""

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

from gantree.text.words import WORD_PATTERN

MAX_NODES_OF_A_HOSTLIST = 100_000
MAX_HOSTLIST_CHARS = 4096

_RANGE = r"\d{1,9}(?:-\d{1,9})?"
_HOSTLIST = re.compile(rf"(?:[A-Za-z0-9._:-]|\[{_RANGE}(?:,{_RANGE})*\])+", re.ASCII)
_BRACKET = re.compile(r"\[([^\]]*)\]")
_WORD = re.compile(WORD_PATTERN, re.ASCII)
_DIGIT_BESIDE = re.compile(r"\d\[|\]\d")
"""A digit beside a bracket: the library makes it part of the bracket's numbers."""
_AFTER_DIGIT = re.compile(r"\d\[([^\]]*)\]")
_MAX_BRACKETS = 16


class BadHostlist(ValueError):
    """What is wrong with a hostlist, for `fields` to tell."""


def count_nodes(text: str) -> int:
    """Return how many names a hostlist stands for. Raises BadHostlist with what is allowed instead."""
    if len(text) > MAX_HOSTLIST_CHARS or not _HOSTLIST.fullmatch(text):
        raise BadHostlist("a node name or a hostlist such as n[0-31]")
    brackets = _BRACKET.findall(text)
    if len(brackets) > _MAX_BRACKETS:
        raise BadHostlist(f"a hostlist with at most {_MAX_BRACKETS} brackets")
    if not _WORD.fullmatch(_BRACKET.sub(_widest, text)):
        raise BadHostlist(
            "node names of at most 253 characters that begin with a letter, digit or `_`"
        )
    count = 1
    for ranges in brackets:
        count *= _length(ranges)
        if count > MAX_NODES_OF_A_HOSTLIST:
            raise BadHostlist(f"a hostlist of at most {MAX_NODES_OF_A_HOSTLIST} nodes")
    if "][" in text:  # n[1,11][1,11] would make n111 in two ways
        raise BadHostlist("a hostlist with something between its brackets")
    if _DIGIT_BESIDE.search(text) and not _is_readable(text):
        raise BadHostlist(
            "a hostlist with no digit right before a bracket, or as many digits at both ends of its ranges"
        )
    return count


def _is_readable(text: str) -> bool:
    """Whether the library reads a hostlist, known to be small enough, in which digits stand beside brackets.

    n1[8-10] it reads as n[18-110], and n[1-2]0[3-4] not at all.
    """
    for bracket in _AFTER_DIGIT.findall(text):
        if any(len({len(end) for end in part.split("-")}) > 1 for part in bracket.split(",")):
            return False
    try:
        NodeSet(text, resolver=RESOLVER_NOGROUP)
    except NodeSetParseError:
        return False
    return True


def expand(text: str) -> list[str]:
    """Return the names of a hostlist that `count_nodes` accepted, in order, each once."""
    return [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]


def folded(names: Iterable[str]) -> str:
    """Return node names as a hostlist, several with commas between them where one cannot say it."""
    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def _widest(bracket: re.Match[str]) -> str:
    return max(re.split("[-,]", bracket[1]), key=len)


def _length(ranges: str) -> int:
    """How many numbers the ranges of one bracket hold."""
    length, beyond = 0, -1
    for low, high in sorted(_ends(part) for part in ranges.split(",")):
        if low <= beyond:
            raise BadHostlist(f"ranges that do not overlap; `{ranges}` has {low} twice")
        length, beyond = length + high - low + 1, high
    return length


def _ends(part: str) -> tuple[int, int]:
    low, _, high = part.partition("-")
    if high and int(high) < int(low):
        raise BadHostlist(f"ranges that run upwards; `{part}` runs backwards")
    if high and len(low) != len(high) and any(end[0] == "0" != end for end in (low, high)):
        raise BadHostlist(
            f"as many digits at both ends where there are leading zeros, unlike `{part}`"
        )
    return int(low), int(high or low)
