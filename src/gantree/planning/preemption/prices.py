"""The price of a victim: its rank before its harm, as one integer that can be added and compared.

Rights are levels. The number of a victim is its harm in thousandths of a GPU-second, and one more, so that of two sets
of equal harm the smaller one wins, moved up by LEVEL_BITS for each level. As no sum of a level reaches the next one,
comparing two sums compares the harm done to the greatest right first, then to the next. Python's integers have no
width, so nothing is rounded off.
"""

from collections.abc import Sequence

LEVEL_BITS = 64
"""A level has room for 2**64 thousandths of a GPU-second: 580,000 years of 1,000 GPUs."""

MOST_LEVELS = 16
"""Distinct levels; if there are more rights, the lowest ones share a level."""

HARM_UNITS = 1000


def levels(rights: Sequence[tuple[float, ...]]) -> list[int]:
    """The level of each right, from 0, the least."""
    ranked = sorted(set(rights))
    spare = max(0, len(ranked) - MOST_LEVELS)
    number_of = {right: max(0, number - spare) for number, right in enumerate(ranked)}
    return [number_of[right] for right in rights]


def price(level: int, harm_gpu_s: float) -> int:
    """The price of one victim."""
    return (round(harm_gpu_s * HARM_UNITS) + 1) << (LEVEL_BITS * level)
