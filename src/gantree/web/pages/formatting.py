"""Formats values for pages: times, durations, counts. Functions that make HTML escape their input."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from gantree.text import words
from gantree.web.fabric.style import hue_of

DASH = "\N{EN DASH}"


def moment(at: float | None) -> str | Markup:
    """A time in seconds since 1970; the browser writes it in its own zone, and how long ago that is."""
    if at is None:
        return DASH
    clock = datetime.fromtimestamp(at, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        f"{clock:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z", f"{clock:%Y-%m-%d %H:%M:%S} UTC"
    )


def span(seconds: float | None) -> str:
    """A duration: "45 s", "12 min", "3 h 5 min", "2 d 4 h"."""
    return DASH if seconds is None else words.span(seconds)


def number(value: float | None) -> str:
    """A count or an amount, with thousands apart; three digits of what is not whole."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def percent(part: float | None) -> str:
    """A part of one."""
    return DASH if part is None else f"{100 * part:.0f} %"


WORDS: Mapping[str, Callable[..., Any]] = {
    "moment": moment,
    "span": span,
    "number": number,
    "percent": percent,
    "hue_of": hue_of,
}
"""What templates may call."""
