"""Cells of a table: how the text of each kind is read, and what is allowed in it. Used by all formats of traces."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from gantree.model.cluster import ANY_MARKET, ON_DEMAND, SPOT
from gantree.model.jobs import AXES, COMPUTE_PARTITIONS
from gantree.text.words import NAME_PATTERN

MAX_SECONDS = 1e12
"""Moments may be seconds, or even milliseconds, since 1970; a sum over all rows of them must stay finite."""
MARKETS = (ON_DEMAND, SPOT, ANY_MARKET)
MONDAY = datetime(1970, 1, 5)  # noqa: DTZ001 - the wall clock of the trace
"""Zero of the wall clock: a Monday at midnight, so that a remainder by the week is the time of the week."""

_NAME = re.compile(NAME_PATTERN, re.ASCII)
_QUEUE = re.compile(f"{NAME_PATTERN}(/{NAME_PATTERN}){{0,15}}", re.ASCII)
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_SIGNED = re.compile(r"[-+]?[0-9]{1,9}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]{1,3})?|[0-9]+\.", re.ASCII)
_MIG = re.compile(
    rf"[1-9]g\.[1-9][0-9]{{0,3}}gb(?:[+-]me(?:\.all)?|\+gfx)?|{'|'.join(COMPUTE_PARTITIONS)}",
    re.ASCII,
)
_AXIS = re.compile(rf"({'|'.join(AXES)})=([1-9][0-9]{{0,8}})", re.ASCII)
_YES_NO = {"yes": True, "true": True, "no": False, "false": False}


class Cell(NamedTuple):
    """A kind of cell. parse raises ValueError or OverflowError for text that `allowed` does not describe."""

    parse: Callable[[str], Any]
    allowed: str


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= MAX_SECONDS or not _DECIMAL.fullmatch(text.strip()):
        raise ValueError
    return value


def _above_zero(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise ValueError
    return value


def _share(text: str) -> float:
    value = _above_zero(text)
    if value > 1:
        raise ValueError
    return value


def _count(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError
    return int(text)


def _count_from_one(text: str) -> int:
    value = _count(text)
    if value == 0:
        raise ValueError
    return value


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError
    return text


def _priority(text: str) -> str | int:
    return int(text) if _SIGNED.fullmatch(text) else _matching(_NAME, text)


def _yes(text: str) -> bool:
    if text not in _YES_NO:
        raise ValueError
    return _YES_NO[text]


def _text(text: str) -> str:
    if not text.isprintable():
        raise ValueError
    return text


def _part(text: str) -> float:
    value = _seconds(text)
    if value > 1:
        raise ValueError
    return value


def _market(text: str) -> str:
    if text not in MARKETS:
        raise ValueError
    return text


def _parallelism(text: str) -> tuple[tuple[str, int], ...]:
    ways: dict[str, int] = {}
    for word in text.split():
        found = _AXIS.fullmatch(word)
        if found is None or found[1] in ways:
            raise ValueError
        ways[found[1]] = int(found[2])
    return tuple(ways.items())


def _wall_clock(text: str) -> float:
    """Seconds from MONDAY to a date and time as the clock on the wall showed it; an offset from UTC is passed over."""
    value = (datetime.fromisoformat(text.strip()).replace(tzinfo=None) - MONDAY).total_seconds()
    if not 0 <= value <= MAX_SECONDS:
        raise ValueError
    return value


def _number(text: str) -> float:
    value = float(text)
    if not -MAX_SECONDS <= value <= MAX_SECONDS:
        raise ValueError
    return value


def _whole(text: str) -> int:
    return _count(text.removesuffix(".0"))


def name_of(text: str) -> str:
    """A name of a foreign table as one of ours: other signs become `-`, at most 63 are kept. Raises ValueError."""
    return _matching(_NAME, _NO_NAME.sub("-", text.strip()).strip("._-")[:63])


SECONDS = Cell(_seconds, "seconds, 0 or more and at most 1e12")
SECONDS_ABOVE_ZERO = Cell(_above_zero, "seconds, more than 0 and at most 1e12")
AMOUNT = Cell(_seconds, "a number of 0 or more")
AMOUNT_ABOVE_ZERO = Cell(_above_zero, "a number above 0")
SHARE = Cell(_share, "a share of one GPU above 0, at most 1")
PART = Cell(_part, "a number from 0 to 1")
COUNT = Cell(_count, "a whole number of 0 or more")
COUNT_FROM_ONE = Cell(_count_from_one, "a whole number of 1 or more")
NAME = Cell(partial(_matching, _NAME), "a name of letters, digits, `.`, `_` and `-`, at most 63")
TIER = Cell(partial(_matching, _NAME), "a tier of the cluster")
QUEUE = Cell(partial(_matching, _QUEUE), "names joined by `/`")
TEXT = Cell(_text, "text")
PRIORITY = Cell(_priority, "a priority class or a whole number")
YES_NO = Cell(_yes, "yes or no")
MIG = Cell(partial(_matching, _MIG), "a MIG profile, such as 3g.40gb, or cpx")
MARKET = Cell(_market, "on-demand, spot or any")
PARALLELISM = Cell(
    _parallelism, f"AXIS=WAYS with spaces between, of the axes {', '.join(AXES)}, each once"
)
WALL_CLOCK = Cell(_wall_clock, "a date and time such as 2020-06-09 18:41:01")

# Of foreign tables, which other programs write.
NUMBER = Cell(_number, "a number")
WHOLE = Cell(_whole, "a whole number of 0 or more, with or without `.0`")
FOREIGN_NAME = Cell(name_of, "a name with a letter or digit in it")
