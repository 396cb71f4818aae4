"""Moments on the command line: a date, with a time or without, or how long ago."""

from datetime import UTC, datetime

from gantree.model.errors import BadInput

ALLOWED = "a date such as 2026-11-01, or how long ago: 7d, 36h"
FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


def seconds_since_epoch(option: str, text: str | None, now: float) -> float | None:
    """Seconds since 1970 of a date (its first moment, UTC), a date with a time, or so long ago. Raises BadInput."""
    if text is None:
        return None
    for form in FORMS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            pass
    from gantree.formats.validation.fields import duration  # noqa: PLC0415 - takes long

    try:
        return max(0.0, now - duration(text))
    except ValueError:
        raise BadInput(f"{option}: found {text!r}; allowed: {ALLOWED}") from None
