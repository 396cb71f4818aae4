"""Type adapters of route parameters and answers, made once in a process and not once for each application.

FastAPI makes some 280 for our routes whenever an application is built; that is a third of the CPU of a short daemon.
Adapters are not changed after they were made, so equal fields may share one.
"""

from functools import cache
from typing import Any

from fastapi._compat.v2 import ModelField, asdict
from pydantic import TypeAdapter

_make = ModelField.__post_init__
_made: dict[object, TypeAdapter[Any]] = {}


@cache
def share_type_adapters() -> None:
    """Have this process, and those forked from it, make each adapter once."""
    ModelField.__post_init__ = _share  # type: ignore[assignment, method-assign]  # self is named field


def _share(field: ModelField) -> None:
    key = _key_of(field)
    if key is None:
        _make(field)
    elif (made := _made.get(key)) is not None:
        field._type_adapter = made
    else:
        _make(field)
        _made[key] = field._type_adapter


def _key_of(field: ModelField) -> object:
    """Equal for fields with equal adapters: the same type, and the same attributes to the letter. None: not known."""
    key = (field.field_info.annotation, repr(asdict(field.field_info)), repr(field.config))
    try:
        hash(key)
    except TypeError:
        return None
    return key
