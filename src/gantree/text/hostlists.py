"""Hostlists (`n[0-31]`, `r[0-1]-n[00-11]`) to node names, and back.

A hostlist is checked and counted before it is expanded, and expanded only when the whole file is known to be small
enough: the library behind it would first build what it then refuses.
"""

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from gantree.text.words import WORD_PATTERN

MAX_NODES_OF_A_HOSTLIST = 100_000
MAX_HOSTLIST_CHARS = 4096

_RANGE = r"\d{1,9}(?:-\d{1,9})?"
_HOSTLIST = re.compile(rf"(?:[A-Za-z0-9._:-]|\[{_RANGE}(?:,{_RANGE})*\])+", re.ASCII)
_BRACKET = re.compile(r"\[([^\]]*)\]")
_WORD = re.compile(WORD_PATTERN, re.ASCII)
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
    return count


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
