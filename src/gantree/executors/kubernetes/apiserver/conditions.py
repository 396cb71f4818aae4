"""Conditions of a status, and times, as the API has them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def with_transition(condition: Json, told: Mapping[str, Any], now: float) -> Json:
    """A condition with the time since when it is so; told is the status before."""
    before = told.get("conditions")
    since = {
        (each.get("type"), each.get("status")): each.get("lastTransitionTime")
        for each in (before if isinstance(before, list) else ())
    }
    known = since.get((condition["type"], condition["status"]))
    return {**condition, "lastTransitionTime": known or api_time(now)}


def api_time(seconds: float) -> str:
    """A time as objects have it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(told: object) -> float | None:
    """The time of a field; None for what is none."""
    try:
        return datetime.fromisoformat(told).timestamp() if isinstance(told, str) else None
    except ValueError:
        return None
