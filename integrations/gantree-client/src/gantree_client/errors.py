"""What a call raises: the daemon's answer, or that none came."""

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """Anything that keeps a call from being answered."""


class Unreachable(ApiError):
    """No daemon answered, or the one that did broke off."""


class BrokenOff(Unreachable):
    """One request had no whole answer; whether it was done is unknown."""


class Rejected(ApiError):
    """The daemon said no. title is the kind of error as in docs/api.md, such as NotFound or BadFields."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        """problem is the answer's body, application/problem+json."""
        self.status = status
        self.title = str(problem.get("title") or status)
        self.detail = str(problem.get("detail") or f"HTTP status {status}")
        super().__init__(self.detail)

    def __reduce__(self) -> tuple[Any, ...]:
        """Plug-ins pickle errors."""
        return type(self), (self.status, {"title": self.title, "detail": self.detail})
