"""Decodes the JSON of a daemon. Content that no daemon of this version sends raises an error that names it.

Standard library only: the command line must start fast.
"""

import json
from typing import Any

from gantree import __version__
from gantree.model.errors import Unreachable


class Answer(dict[str, Any]):
    """An object of an answer; a field that it has not was left out by a daemon of another version, or by none."""

    def __missing__(self, field: str) -> Any:
        raise Unreachable(
            f"the answer has no field {field!r}: no gantree daemon of version {__version__} gave it"
        )


def decoded(content: bytes | str) -> Any:
    """The value of a JSON text, its objects as Answers. Raises ValueError."""
    try:
        return json.loads(content, object_hook=Answer)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def decoded_object(content: bytes) -> Answer:
    """The object that an answer consists of. Raises ValueError for what is none."""
    value = decoded(content)
    if not isinstance(value, Answer):
        raise ValueError(f"JSON that is no object: {value!r:.40}")
    return value
