"""Lengths of time on the command line, written as in files."""

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


def seconds_or_zero_of(option: str, text: str) -> float:
    """As `seconds_of`, and 0 for 0s. Raises BadInput, which names the option."""
    return 0.0 if text in ("0", "0s") else seconds_of(option, text)
