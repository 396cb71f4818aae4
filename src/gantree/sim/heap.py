"""The event heap of a simulation: (time, priority, sequence, event).

The sequence number gives events of one moment and one priority the order in which they were foretold, so equal
input gives equal runs. An event that was foretold can be retracted before its time has come.
"""

from heapq import heappop, heappush

from gantree.model.events import Event


class EventHeap:
    """Events in the order of their observed_at (seconds), then priority (smaller first), then as foretold."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Event]] = []
        self._foretold = 0
        self._retracted: set[int] = set()

    def push(self, event: Event, priority: int = 0) -> int:
        """Foretell an event; the number returned is what `retract` takes."""
        self._foretold += 1
        heappush(self._heap, (event.observed_at, priority, self._foretold, event))
        return self._foretold

    def retract(self, number: int) -> None:
        """Take back an event that has not been popped yet."""
        self._retracted.add(number)

    def next_moment(self) -> float | None:
        """The time of the next event in seconds; None if there is none."""
        while self._heap and self._heap[0][2] in self._retracted:
            self._retracted.remove(heappop(self._heap)[2])
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Event:
        """The next event; there must be one."""
        assert self.next_moment() is not None, "nothing is foretold"
        return heappop(self._heap)[3]
