"""Who goes first: the order of waiting jobs, and an index that walks them in it.

Order is priority (larger first), then arrival. Jobs whose gangs are alike (equal `placement.search.signature`)
get the same answer from the same occupancy, so the index keeps them in one line: when the first of a line is
refused, the others of it need not be asked.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple


class Position(NamedTuple):
    """A job's place in the order: smaller goes first."""

    minus_priority: int
    seq: int
    job: str


class Lines:
    """Waiting jobs, one sorted line per signature."""

    def __init__(self) -> None:
        self._positions_of_signature: dict[Hashable, list[Position]] = {}

    def __len__(self) -> int:
        return sum(len(positions) for positions in self._positions_of_signature.values())

    def add(self, signature: Hashable, position: Position) -> None:
        """Put a job in its line."""
        insort(self._positions_of_signature.setdefault(signature, []), position)

    def remove(self, signature: Hashable, position: Position) -> None:
        """Take a job out of its line; it must be there."""
        positions = self._positions_of_signature[signature]
        index = bisect_left(positions, position)
        assert index < len(positions) and positions[index] == position, (
            f"{position.job} is not in its line"
        )
        del positions[index]
        if not positions:
            del self._positions_of_signature[signature]

    def waits(self, signature: Hashable, priority: int) -> bool:
        """Whether a job of this signature and priority is in line."""
        positions = self._positions_of_signature.get(signature, [])
        index = bisect_left(positions, (-priority,))
        return index < len(positions) and positions[index].minus_priority == -priority

    def walk(
        self, open_line: Callable[[Hashable, Position], bool]
    ) -> Iterator[tuple[Hashable, Position]]:
        """Yield (signature, position) in order; a line ends where open_line, asked before each position, says no.

        Jobs may be removed from their lines while the walk goes on.
        """
        lines = {
            signature: tuple(positions)
            for signature, positions in self._positions_of_signature.items()
        }
        heads: list[tuple[Position, int, Hashable]] = []
        for number, (signature, positions) in enumerate(lines.items()):
            heappush(heads, (positions[0], number, signature))
        cursor_of_line = [0] * len(lines)
        while heads:
            position, number, signature = heappop(heads)
            if not open_line(signature, position):
                continue
            yield signature, position
            cursor_of_line[number] += 1
            if cursor_of_line[number] < len(lines[signature]):
                heappush(heads, (lines[signature][cursor_of_line[number]], number, signature))

    def ahead_of(self, position: Position) -> Iterator[Position]:
        """Yield the positions that go before this one, in order."""
        for _, other in self.walk(lambda _, head: head < position):
            yield other
