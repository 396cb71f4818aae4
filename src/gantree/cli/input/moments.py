"""Moments on the command line: a date, or how long ago."""

from datetime import UTC, datetime

from gantree.model.errors import BadInput

ALLOWED = "a date such as 2026-11-01, or how long ago: 7d, 36h"


def seconds_since_epoch(option: str, text: str | None, now: float) -> float | None:
    """Seconds since 1970 of a date (its first moment, UTC) or of so long ago. Raises BadInput."""
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        pass
    from gantree.formats.validation.fields import duration  # noqa: PLC0415 - takes long

    try:
        return max(0.0, now - duration(text))
    except ValueError:
        raise BadInput(f"{option}: found {text!r}; allowed: {ALLOWED}") from None
