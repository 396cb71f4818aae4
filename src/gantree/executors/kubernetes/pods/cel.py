"""Expressions in CEL evaluated by cel-python, with what Kubernetes adds to the language.

Beside what CEL has there are Kubernetes' `quantity` and `semver`, with comparisons, and `cel.bind`, which cel-python
does not have and which is written otherwise. This module is imported when there is a first expression: cel-python takes
a second to import.
"""

import re
from collections.abc import Iterable
from functools import lru_cache, total_ordering
from typing import Any

import celpy
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.celtypes import BoolType, IntType, MapType, StringType
from celpy.evaluation import CELEvalError

from gantree.executors.kubernetes.pods.device_rules import BadRule, Facts, Version
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

_ANSWERS, _PROGRAMS, _FACTS = 65_536, 1_024, 4_096
_BIND = re.compile(r"\bcel\s*\.\s*bind\s*\(")
_OPTIONAL_DOMAIN = re.compile(r"\b(device\.(?:attributes|capacity))\[\?([^][]*)\]")
_OPTIONAL = re.compile(
    r"(?P<path>\bdevice(?:\.\w+|\[[^][]*\])+)\.\?(?P<name>\w+)\s*\.\s*(?P<call>orValue|hasValue)\s*\("
)
_SEMVER = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_OPENS, _CLOSES, _QUOTES = "([{", ")]}", "'\""


@lru_cache(maxsize=_ANSWERS)
def answer(expression: str, facts: Facts) -> bool:
    """Whether an expression is true of a device. Raises BadRule."""

    program = _program(expression)
    try:
        found = program.evaluate({"device": _device(facts)})
    except (
        CELEvalError,
        AttributeError,
    ):  # the latter where a function is called on what has no such thing
        return False
    return isinstance(found, BoolType) and bool(found)


@lru_cache(maxsize=_PROGRAMS)
def _program(expression: str) -> Any:

    env = celpy.Environment()
    try:
        plain = without_optionals(without_bind(expression))
        return env.program(env.compile(plain), functions=_functions())
    except CELParseError as error:
        raise BadRule(f"{expression!r} cannot be read as CEL") from error


@lru_cache(maxsize=_FACTS)
def _device(facts: Facts) -> Any:

    told = {
        "driver": StringType(facts.driver),
        "allowMultipleAllocations": BoolType(facts.is_shared),
        "attributes": _by_domain(
            (name, _Semver(value.text) if isinstance(value, Version) else json_to_cel(value))
            for name, value in facts.attributes
        ),
        "capacity": _by_domain((name, _Quantity(text)) for name, text in facts.capacity),
    }
    return MapType({StringType(name): value for name, value in told.items()})


def _by_domain(pairs: Iterable[tuple[str, Any]]) -> Any:
    """A map of maps, in which every domain is there."""

    class Domains(MapType):
        def __getitem__(self, key: Any) -> Any:
            return self.get(key, MapType({}))

    found: Any = Domains({})
    for name, value in pairs:
        domain, _, word = name.rpartition("/")
        found.setdefault(StringType(domain), MapType({}))[StringType(word)] = value
    return found


def without_bind(expression: str) -> str:
    """An expression with each `cel.bind(name, value, body)` written as `([value].map(name, body)[0])`.

    cel-python does not have that macro, and the two mean the same. Raises BadRule where brackets do not match.
    """
    match = _BIND.search(expression)
    if match is None:
        return expression
    parts, end = _arguments(expression, match.end())
    if len(parts) != 3:
        raise BadRule(f"{expression!r}: cel.bind takes a name, a value and an expression")
    name, value, body = parts[0].strip(), without_bind(parts[1]), without_bind(parts[2])
    rest = without_bind(expression[end:])
    return f"{expression[: match.start()]}([{value}].map({name}, {body})[0]){rest}"


def without_optionals(expression: str) -> str:
    """An expression with `PATH.?name.orValue(other)` written as `(has(PATH.name) ? PATH.name : other)`.

    cel-python does not have optional values. A domain in brackets (`device.attributes[?"domain"].?name`) is always
    there. Raises BadRule where brackets do not match.
    """
    expression = _OPTIONAL_DOMAIN.sub(r"\1[\2]", expression)
    match = _OPTIONAL.search(expression)
    if match is None:
        return expression
    parts, end = _arguments(expression, match.end())
    path = f"{match['path']}.{match['name']}"
    found = f"has({path})"
    if match["call"] == "orValue":
        found = f"({found} ? {path} : ({without_optionals(parts[0])}))"
    return f"{expression[: match.start()]}{found}{without_optionals(expression[end:])}"


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call whose bracket opens before `start`, and where it ends."""
    parts: list[str] = []
    depth, begin, quote, at = 0, start, "", start
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        elif char in _OPENS:
            depth += 1
        elif char in _CLOSES and depth:
            depth -= 1
        elif char in _CLOSES:
            return [*parts, text[begin:at]], at + 1
        elif char == "," and not depth:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    raise BadRule(f"{text!r}: a bracket is not closed")


@total_ordering
class _Quantity:
    """A quantity of the API, in expressions."""

    def __init__(self, text: str) -> None:
        value = quantity(text)
        if value is None:
            raise ValueError(f"{text!r} is no quantity")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Quantity) and self.value == other.value

    def __lt__(self, other: "_Quantity") -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)


@total_ordering
class _Semver:
    """A semantic version, in expressions: numbers first, then whether it is a pre-release, then which one."""

    def __init__(self, text: str) -> None:
        match = _SEMVER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no semantic version")
        self.numbers = tuple(map(int, match.groups()[:3]))
        words = (match[4] or "").split(".") if match[4] else []
        self._order = (
            self.numbers,
            not words,
            [(not word.isdecimal(), int(word) if word.isdecimal() else 0, word) for word in words],
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Semver) and self._order == other._order

    def __lt__(self, other: "_Semver") -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(str(self._order))


def _functions() -> dict[str, Any]:
    """What Kubernetes has beside CEL's own functions; a method's first argument is what it is called on."""

    def compare(one: Any, other: Any) -> Any:
        return IntType((one > other) - (one < other))

    def part(number: int) -> Any:
        return lambda version: IntType(version.numbers[number])

    return {
        "quantity": lambda text: _Quantity(str(text)),
        "semver": lambda text, *_: _Semver(str(text)),
        "isQuantity": lambda text: BoolType(quantity(str(text)) is not None),
        "isSemver": lambda text, *_: BoolType(_SEMVER.fullmatch(str(text)) is not None),
        "compareTo": compare,
        "isGreaterThan": lambda one, other: BoolType(one > other),
        "isLessThan": lambda one, other: BoolType(one < other),
        "asInteger": lambda one: IntType(int(one.value)),
        "major": part(0),
        "minor": part(1),
        "patch": part(2),
        "lowerAscii": lambda text: StringType(text.lower()),
        "upperAscii": lambda text: StringType(text.upper()),
    }
