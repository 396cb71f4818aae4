"""Which pairs are timed together: rounds in which each of n meets at most one other. Pure."""

from collections.abc import Sequence

MOST_ROUNDS = 7
"""So many partners each member meets at most: a bad one is short with all of them."""

Pair = tuple[int, int]


def rounds(count: int, most: int = MOST_ROUNDS) -> tuple[tuple[Pair, ...], ...]:
    """Return rounds of pairs of the numbers 0 to count - 1, by the circle method; all pairs where `most` allows it.

    Each number is in at most one pair of a round, and in every round where count is even.
    """
    if count < 2:
        return ()
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(min(most, len(seats) - 1)):
        half = len(seats) // 2
        found.append(_pairs(seats[:half], seats[: half - 1 : -1]))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(found)


def _pairs(left: Sequence[int | None], right: Sequence[int | None]) -> tuple[Pair, ...]:
    met = zip(left, right, strict=True)
    return tuple((min(a, b), max(a, b)) for a, b in met if a is not None and b is not None)
