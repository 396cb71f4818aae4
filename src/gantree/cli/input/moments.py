"""Moments on the command line: a date, with a time or without, or how long ago."""

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

from gantree.model.errors import BadInput

ALLOWED = "a date such as 2026-11-01, or how long ago: 7d, 36h"
FirstDayOption = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help=f"First day, in UTC: {ALLOWED}. [default: 7d]"),
]
DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def seconds_since_epoch(option: str, text: str | None, now: float) -> float | None:
    """Seconds since 1970 of a date (its first moment), a date with a time, or so long ago; UTC without a zone.

    Raises BadInput.
    """
    if text is None:
        return None
    if DATE.match(text):
        try:
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
    from gantree.formats.validation.fields import duration  # noqa: PLC0415 - takes long

    try:
        return max(0.0, now - duration(text))
    except ValueError:
        raise BadInput(f"{option}: found {text!r}; allowed: {ALLOWED}") from None
