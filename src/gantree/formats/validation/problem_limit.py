"""A limit on problems: validation of a file with very many of them stops early and reports a few.

Pydantic keeps every error until it has looked at everything, and an error takes far more room than what it is about:
a job file of one MiB could take the daemon a GiB. So the checks count what they find wrong (`count_mistakes`), and
beyond MAX_MISTAKES they break off. What is then told comes from the file cut down to the first entries of each list
and mapping.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

from gantree.text.document import Rows, Table

MAX_MISTAKES = 1000
SHORTER_AND_SHORTER = (100, 10, 2)
"""To how many entries each list and mapping is cut, until what is left has few enough mistakes to tell them."""

_left: ContextVar[int | None] = ContextVar("mistakes that may still be found", default=None)


class Flood(Exception):
    """Too many problems: ends the validation; `forms` reports those found."""


@contextmanager
def few_mistakes() -> Iterator[None]:
    """Inside, the mistake after MAX_MISTAKES raises Flood."""
    token = _left.set(MAX_MISTAKES)
    try:
        yield
    finally:
        _left.reset(token)


def count_mistakes(number: int = 1) -> None:
    """Something was found wrong. Raises Flood, where few mistakes are expected, if that was one too many."""
    left = _left.get()
    if left is None:
        return
    _left.set(left - number)
    if left < number:
        raise Flood


def cut(value: Any, most: int) -> None:
    """Leave only the first entries of a list or mapping, and of all that are in it."""
    if isinstance(value, Table):
        for key in list(islice(value, most, None)):
            del value[key]
        for entry in value.values():
            cut(entry, most)
    elif isinstance(value, Rows):
        del value[most:], value.lines[most:], value.numbers[most:]
        for item in value:
            cut(item, most)
