"""Frozen dataclasses with a fast constructor, for values that are made by the dozen for every job.

The `__init__` of a frozen dataclass sets each field by a call, past its own `__setattr__`: for an order of twenty
fields that takes five times as long as plain assignment, and all of them together were a sixth of what a pod costs.
`quick` gives such a class one that assigns: to a twin of the class that is not frozen, which the instance is until all
of it is there. To whoever sees it, it has always been frozen.
"""

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")
MADE_HERE = "<quick>"
"""What tracebacks name as the file."""


def quick(kind: type[T]) -> type[T]:
    """A frozen dataclass, with the same signature and the same instances, that are made quicker.

    Not for those with default factories or fields that `__init__` does not take; and nothing is derived from it but
    dataclasses, which have their own `__init__`.
    """
    told = fields(kind)  # type: ignore[arg-type]  # a dataclass, or this raises
    assert all(each.init and each.default_factory is MISSING for each in told), kind
    plain = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    twin = type(kind.__name__, (kind,), {"__slots__": (), **plain})
    known = {f"_{each.name}": each.default for each in told}
    known |= {"_set": object.__setattr__, "_kind": kind, "_twin": twin}
    made: dict[str, Any] = {}
    text = _text_of(told, ends_with=hasattr(kind, "__post_init__"))
    exec(compile(text, MADE_HERE, "exec"), known, made)  # noqa: S102  # as dataclasses do
    init = made["__init__"]
    init.__module__, init.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    init.__annotations__ = dict(kind.__init__.__annotations__)
    setattr(kind, "__init__", init)  # noqa: B010  # the same signature, which mypy cannot see
    return kind


def _text_of(told: tuple[Field[Any], ...], *, ends_with: bool) -> str:
    """The function; ends_with: whether `__post_init__` is called."""
    by_place = [_parameter(each) for each in told if not each.kw_only]
    by_name = [_parameter(each) for each in told if each.kw_only]
    head = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    lines = [
        f"def __init__({head}):",
        "assert self.__class__ is _kind, 'nothing is derived from it'",
        "_set(self, '__class__', _twin)",
        *(f"self.{each.name} = {each.name}" for each in told),
        "self.__class__ = _kind",
        *(["self.__post_init__()"] if ends_with else []),
    ]
    return "\n    ".join(lines)


def _parameter(told: Field[Any]) -> str:
    return told.name if told.default is MISSING else f"{told.name}=_{told.name}"
