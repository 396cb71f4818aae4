"""When a call may be made: not while the same one is under way, and after a failure not at once. Pure."""

from gantree.federation.calls import CallKey

AGAIN_S = 2.0
"""After a call that failed, or to look again."""


class CallSchedule:
    """Calls by their keys."""

    def __init__(self) -> None:
        self._under_way: set[CallKey] = set()
        self._not_before: dict[CallKey, float] = {}

    def is_under_way(self, key: CallKey) -> bool:
        """Whether its answer is awaited."""
        return key in self._under_way

    def is_due(self, key: CallKey, now_s: float) -> bool:
        """Whether it may be made now."""
        return key not in self._under_way and now_s >= self._not_before.get(key, now_s)

    def begin(self, key: CallKey) -> None:
        """It is made."""
        self._under_way.add(key)

    def over(self, key: CallKey) -> None:
        """It was answered, or has failed."""
        self._under_way.discard(key)

    def wait(self, key: CallKey, until_s: float) -> None:
        """Not again before this moment."""
        self._not_before[key] = until_s

    def forget(self, now_s: float) -> None:
        """Drop the moments that have passed."""
        self._not_before = {key: at for key, at in self._not_before.items() if at > now_s}
