"""Lengths of time and moments on the command line, written as in files."""

from datetime import datetime

from pydantic_core import PydanticCustomError

from gantree.formats.validation.fields import duration_above_zero
from gantree.model.errors import BadInput


def seconds_of(option: str, text: str) -> float:
    """Seconds of a text such as 90s, 2h, 30d. Raises BadInput, which names the option."""
    try:
        return duration_above_zero(text)
    except PydanticCustomError:
        raise BadInput(
            f"{option}: found {text!r}; allowed: a duration such as 90s, 2h or 30d"
        ) from None


def moment_of(option: str, text: str, now: float) -> float:
    """Seconds since 1970 of so long ago (90s, 2h) or of a time as ISO 8601 has it. Raises BadInput.

    A time without a zone is of the local one.
    """
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return max(0.0, now - duration_above_zero(text))
    except PydanticCustomError:
        raise BadInput(
            f"{option}: found {text!r}; allowed: how long ago, such as 90s, 2h or 30d, or a time such as"
            " 2026-11-26T17:00"
        ) from None
