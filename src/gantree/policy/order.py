"""Who goes first: the order of waiting jobs, and an index that walks them in it.

Order is priority (larger first), then arrival. Jobs whose gangs are alike (equal `placement.search.signature`)
get the same answer from the same occupancy, so the index keeps them in one line: when the first of a line is
refused, the others of it need not be asked.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
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

        The job that was yielded last may be removed from its line before the walk goes on.
        """
        heads: list[tuple[Position, int, Hashable]] = [
            (positions[0], number, signature)
            for number, (signature, positions) in enumerate(self._positions_of_signature.items())
        ]
        heapify(heads)
        rest_of_line: dict[Hashable, Iterator[Position]] = {}
        while heads:
            position, number, signature = heappop(heads)
            if not open_line(signature, position):
                continue
            if signature not in rest_of_line:  # copied only now: most lines are never opened
                rest_of_line[signature] = iter(tuple(self._positions_of_signature[signature][1:]))
            yield signature, position
            following = next(rest_of_line[signature], None)
            if following is not None:
                heappush(heads, (following, number, signature))

    def ahead_of(self, position: Position) -> Iterator[Position]:
        """Yield the positions that go before this one, in order."""
        for _, other in self.walk(lambda _, head: head < position):
            yield other
