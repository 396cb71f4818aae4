"""Job arrays: one request that stands for many jobs, its elements, which differ only in their index.

An array is a `Job` with spans of indices; an element is the same job with one index, and a name and an id of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from gantree.model.jobs import Job

Spans = tuple[tuple[int, int], ...]
"""Spans of indices, (first, last), in the order written."""


def size_of(array: Spans) -> int:
    """The number of elements."""
    return sum(last - first + 1 for first, last in array)


def indices_of(array: Spans) -> Iterator[int]:
    """The indices of all elements, in the order written."""
    for first, last in array:
        yield from range(first, last + 1)


def index_at(array: Spans, offset: int) -> int:
    """The index of the element at an offset, counted from 0 in the order written."""
    for first, last in array:
        if offset <= last - first:
            return first + offset
        offset -= last - first + 1
    raise IndexError(offset)


def offset_of(array: Spans, index: int) -> int | None:
    """The offset of the element with an index; None if the array has none."""
    before = 0
    for first, last in array:
        if first <= index <= last:
            return before + index - first
        before += last - first + 1
    return None


def has_index(array: Spans, index: int) -> bool:
    """Whether there is an element with an index."""
    return any(first <= index <= last for first, last in array)


def element_of(array: Job, index: int) -> Job:
    """The element of an array with an index."""
    return replace(array, name=element_name(array.name, index), array=(), array_index=index)


def element_name(array: str, index: int) -> str:
    """The name of an element by the name of its array; its id by the id of its array."""
    return f"{array}-{index}"


def parse_element(word: str) -> tuple[str, int] | None:
    """The array and the index that the name or id of an element consists of; None if it can be none."""
    array, dash, index = word.rpartition("-")
    if not dash or not index.isascii() or not index.isdigit() or len(index) > 9:
        return None
    return (array, int(index)) if element_name(array, int(index)) == word else None


def spans_of(indices: Iterable[int]) -> Spans:
    """Ascending indices as spans."""
    found = []
    for _, run in groupby(enumerate(indices), lambda each: each[1] - each[0]):
        alike = [index for _, index in run]
        found.append((alike[0], alike[-1]))
    return tuple(found)


def merged(first: Spans, then: Spans) -> Spans:
    """Spans one behind the other, as one where they touch."""
    if first and then and first[-1][1] + 1 == then[0][0]:
        return (*first[:-1], (first[-1][0], then[0][1]), *then[1:])
    return (*first, *then)


def in_words(array: Spans, most: int = 8) -> str:
    """Spans as in a job file: `0-9,12`; of more than `most` only the first."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in array[:most]]
    return ",".join(shown) + (",..." if len(array) > most else "")
