"""A shared store of checkpoints: transfers at one time share its bandwidth evenly.

Kept in virtual time: the GB that one transfer had so far. A transfer that begins at virtual time v is over at v + its
GB, however many others come and go (processor sharing; Kleinrock 1967).
"""

from heapq import heappop, heappush


class Store:
    """Transfers by key, each of some GB, through one store. Moments are in seconds and must not decrease."""

    def __init__(self, GBps: float) -> None:
        self._GBps = GBps
        self._virtual_GB = 0.0
        self._now = 0.0
        self._begun = 0
        self._ends: list[tuple[float, int, str]] = []
        self._open: dict[str, int] = {}

    def begin(self, key: str, GB: float, now: float) -> None:
        """Begin a transfer; an open one of the same key is dropped."""
        self._advance(now)
        self._begun += 1
        self._open[key] = self._begun
        heappush(self._ends, (self._virtual_GB + GB, self._begun, key))

    def drop(self, key: str, now: float) -> None:
        """End a transfer before it is done, if it is open."""
        self._advance(now)
        self._open.pop(key, None)

    def next_moment(self) -> float | None:
        """When the next transfer will be done, if none begins or is dropped before; None without any."""
        while self._ends and self._open.get(self._ends[0][2]) != self._ends[0][1]:
            heappop(self._ends)
        if not self._ends:
            return None
        left_GB = max(0.0, self._ends[0][0] - self._virtual_GB)
        return self._now + left_GB * len(self._open) / self._GBps

    def pop(self, now: float) -> str:
        """The transfer that is done now."""
        assert self.next_moment() is not None, "no transfer is open"
        self._advance(now)
        end_GB, _, key = heappop(self._ends)
        self._virtual_GB = max(self._virtual_GB, end_GB)
        del self._open[key]
        return key

    def _advance(self, now: float) -> None:
        if self._open:
            self._virtual_GB += (now - self._now) * self._GBps / len(self._open)
        self._now = now
