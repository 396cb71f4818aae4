"""Whether a device is what an expression in CEL means, as Kubernetes' device selectors are written.

An expression sees `device.driver`, `device.attributes["domain"].name` and `device.capacity["domain"].name`; a domain
that the device has nothing of is there and empty. An expression that breaks off on a device (a field that is not there)
does not mean it.

cel-python takes about a millisecond an evaluation, and most devices of a cluster are alike: an answer is kept for all
devices that are equal in what the expression names. What is not named cannot change it, unless it goes through maps.
"""

import re
from dataclasses import dataclass

Value = bool | int | str
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


def means(expression: str, facts: Facts) -> bool:
    """Whether an expression is true of a device. Raises BadRule for one that cannot be read."""
    from gantree.executors.kubernetes.cel import answer  # noqa: PLC0415 - a second of import, for DRA alone

    is_named = not _GOES_THROUGH_MAPS.search(expression)
    return answer(expression, _named_in(expression, facts) if is_named else facts)


def _named_in(expression: str, facts: Facts) -> Facts:
    """Only those facts whose names stand in an expression."""
    return Facts(
        facts.driver,
        tuple(each for each in facts.attributes if each[0].rpartition("/")[2] in expression),
        tuple(each for each in facts.capacity if each[0].rpartition("/")[2] in expression),
    )
