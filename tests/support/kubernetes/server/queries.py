"""What a request's query says: numbers and flags. A number that is none is 400."""

from collections.abc import Mapping

from support.kubernetes.server.statuses import bad_request


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number that is not negative; None where it is not said."""
    told = query.get(name)
    if not told:
        return None
    if not told.isascii() or not told.isdigit():
        raise bad_request(f"{name}: Invalid value: {told!r}: must be a non-negative integer")
    return int(told)


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """Yes or no; None where it is not said."""
    told = query.get(name)
    return None if told is None else told in {"true", "1", "True"}
