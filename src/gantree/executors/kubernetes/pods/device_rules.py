"""Matches a device against a CEL expression of a Kubernetes device selector.

An expression sees `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name` and
`device.allowMultipleAllocations`; a domain that the device has nothing of is there and empty. An expression that breaks
off on a device (a field that is not there) does not mean it.

cel-python takes about a millisecond an evaluation, and most devices of a cluster are alike: an answer is kept for all
devices that are equal in what the expression names. What is not named cannot change it, unless it goes through maps.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

Value = bool | int | str
_KEPT = 4_096
_GOES_THROUGH_MAPS = re.compile(
    r"\b(?:all|exists|exists_one|filter|map|size|transform\w*)\s*\(|\+|\[\s*[^'\"\s]"
)


class BadRule(Exception):
    """An expression that is none, or that uses what is not known here."""


@dataclass(frozen=True, slots=True)
class Version:
    """The value of an attribute that is a semantic version."""

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What an expression may ask about a device; names are qualified ("domain/name"), capacities are quantities."""

    driver: str
    attributes: tuple[tuple[str, Value | Version], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()
    is_shared: bool = False
    """`device.allowMultipleAllocations`."""


def means(expression: str, facts: Facts) -> bool:
    """Whether an expression is true of a device. Raises BadRule for one that cannot be read."""
    from gantree.executors.kubernetes.pods.cel import answer  # noqa: PLC0415 - a second of import, for DRA alone

    attributes = _named(expression, tuple(name for name, _ in facts.attributes))
    capacity = _named(expression, tuple(name for name, _ in facts.capacity))
    named = Facts(
        facts.driver,
        tuple(facts.attributes[number] for number in attributes),
        tuple(facts.capacity[number] for number in capacity),
        facts.is_shared,
    )
    return answer(expression, named)


@lru_cache(maxsize=_KEPT)
def _named(expression: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """The numbers of those names that an expression may look at."""
    if _GOES_THROUGH_MAPS.search(expression):
        return tuple(range(len(names)))
    words = (name.rpartition("/")[2] for name in names)
    return tuple(number for number, word in enumerate(words) if word in expression)
