"""Matches labels against the label selectors of pods and budgets."""

import hashlib
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from gantree.executors.kubernetes.apiserver.objects import LabelSelector, SelectorRequirement

_DIGESTS_KEPT = 4096


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether labels are as a selector asks: where there is none no labels are, as an empty one asks all are."""
    return (
        selector is not None
        and all(labels.get(key) == value for key, value in selector.match_labels.items())
        and all(_holds(each, labels.get(each.key)) for each in selector.match_expressions)
    )


def narrowed(
    selector: LabelSelector,
    labels: Mapping[str, str],
    equal: tuple[str, ...],
    other: tuple[str, ...] = (),
) -> LabelSelector:
    """A selector that asks besides that some labels are as these, and others are not; what is not there is passed over.

    Servers write that into the selector themselves; to ask twice changes nothing.
    """
    more = [
        SelectorRequirement(key, operator, (labels[key],))
        for keys, operator in ((equal, "In"), (other, "NotIn"))
        for key in keys
        if key in labels
    ]
    new = tuple(each for each in more if each not in selector.match_expressions)
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *new))


def digest(selector: LabelSelector) -> str:
    """A short name: selectors that ask the same have the same, in whatever order."""
    asked = [
        sorted(selector.match_labels.items()),
        sorted(
            (each.key, each.operator, sorted(each.values)) for each in selector.match_expressions
        ),
    ]
    return _digest(msgspec.json.encode(asked))


def _holds(each: SelectorRequirement, value: str | None) -> bool:
    match each.operator:
        case "In":
            return value in each.values
        case "NotIn":
            return value not in each.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


@lru_cache(maxsize=_DIGESTS_KEPT)
def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:12]
