"""The points of a process between two writes: at each of them something may be planned to happen to it."""

from collections.abc import Callable


class Died(BaseException):
    """The process ended here. No Exception: production code must not be able to go on after it."""


class Points:
    """Counts the points that a process passes. `plan` has something happen at one that is still to come."""

    def __init__(self) -> None:
        self.passed = 0
        self._planned: tuple[int, Callable[[str], None]] | None = None

    @property
    def is_planned(self) -> bool:
        """Whether something is still to happen."""
        return self._planned is not None

    def plan(self, after: int, happen: Callable[[str], None]) -> None:
        """After so many further points something happens; it is told where. It replaces what was planned before."""
        self._planned = (self.passed + after, happen)

    def clear(self) -> None:
        """Nothing is planned any more."""
        self._planned = None

    def passing(self, where: str) -> None:
        """Pass one point."""
        self.passed += 1
        if self._planned is not None and self.passed >= self._planned[0]:
            _, happen = self._planned
            self._planned = None
            happen(where)
