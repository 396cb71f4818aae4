"""Which objects a list or a watch is about: selectors of labels and of fields, parsed once and asked often."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from support.kubernetes.server.statuses import Json, bad_request

Matches = Callable[[Json], bool]

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")


def label_matches(selector: str) -> Matches | None:
    """Whether an object's labels match; None where the selector is empty."""
    tests = [_label_test(part) for part in _parts(selector)]
    if not tests:
        return None

    def matches(content: Json) -> bool:
        labels = content["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _parts(selector: str) -> Iterator[str]:
    """The requirements of a selector: its commas outside of brackets part them."""
    for part in re.split(r",(?![^()]*\))", selector):
        if part.strip():
            yield part


def _label_test(part: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(part):
        key, operator, told = found.groups()
        values = frozenset(value.strip() for value in told.split(","))
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: key not in labels or labels[key] not in values
    if found := _EQUAL.match(part):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(part):
        absent, key = found.groups()
        return lambda labels: (key in labels) != bool(absent)
    raise bad_request(f"unable to parse requirement: {part.strip()!r}")


def selector_of(selector: Json | None) -> Matches:
    """Whether labels match a LabelSelector as objects hold it, matchLabels and matchExpressions. Null matches none."""
    if selector is None:
        return lambda _: False
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], ",".join(each.get("values") or ())
        parts.append({
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }[each["operator"]])  # fmt: skip
    return label_matches(",".join(parts)) or (lambda _: True)


def field_matches(selector: str, fields: Iterable[str]) -> Matches | None:
    """Whether an object's fields match; only those of fields may be asked for. None where the selector is empty."""
    known = frozenset(fields)
    tests = [_field_test(part, known) for part in _parts(selector)]
    if not tests:
        return None
    return lambda content: all(test(content) for test in tests)


def _field_test(part: str, known: frozenset[str]) -> Matches:
    found = _EQUAL.match(part)
    if found is None:
        raise bad_request(f"invalid selector: {part.strip()!r}; can't understand it")
    field, operator, value = found.groups()
    if field not in known:
        raise bad_request(f"field label not supported: {field}")
    path = field.split(".")
    if operator == "!=":
        return lambda content: told(content, path) != value
    return lambda content: told(content, path) == value


def told(content: Json, path: Iterable[str]) -> str:
    """A field as selectors see it: text, empty where it is absent."""
    value: Any = content
    for step in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(step)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def both(*tests: Matches | None) -> Matches | None:
    """All of several tests; None where there is none."""
    present = [test for test in tests if test is not None]
    if len(present) <= 1:
        return present[0] if present else None
    return lambda content: all(test(content) for test in present)
