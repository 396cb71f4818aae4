"""Step functions over time: what changes by how much when, and what that is on average over parts of the time."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Changes:
    """When a value changes by how much, in any order; 16 bytes a change."""

    def __init__(self, changes: Iterable[tuple[float, float]] = ()) -> None:
        self._flat = array("d")
        for at_s, by in changes:
            self.add(at_s, by)

    def add(self, at_s: float, by: float) -> None:
        """The value changes by so much at a moment."""
        self._flat.append(at_s)
        self._flat.append(by)

    def held(self, from_s: float, to_s: float | None, value: float) -> None:
        """The value is that much more between two moments; None: until the end."""
        self.add(from_s, value)
        if to_s is not None:
            self.add(to_s, -value)

    def table(self) -> FloatArray:
        """One row (at_s, by) a change."""
        return np.frombuffer(self._flat, dtype=np.float64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Part:
    """What a step function did in one part of the time."""

    least: float
    mean: float
    most: float


def edges(start_s: float, end_s: float, parts: int) -> FloatArray:
    """The ends of equal parts of a time: parts + 1 moments; none where there is no time."""
    if end_s <= start_s:
        return np.empty(0)
    return np.linspace(start_s, end_s, parts + 1)


def means(changes: Changes, at: FloatArray) -> FloatArray:
    """The mean of a value between each two moments of `at`; it is 0 before its first change.

    By the integral of the value, which is linear between changes: exact, in whatever order the changes come.
    """
    told = changes.table()
    if not len(told) or len(at) < 2:
        return np.zeros(max(0, len(at) - 1))
    told = told[np.argsort(told[:, 0], kind="stable")]
    moments, values = told[:, 0], np.cumsum(told[:, 1])
    integral = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(moments))])
    beyond = np.clip(at - moments[-1], 0.0, None) * values[-1]  # after the last change it stays
    found: FloatArray = np.diff(np.interp(at, moments, integral) + beyond) / np.diff(at)
    return found


def parts_of(steps: Sequence[tuple[float, float]], at: FloatArray) -> list[Part]:
    """Least, mean and most of a step function [(from_s, value), ...] between each two moments of `at`.

    The function begins at or before the first moment.
    """
    found, position = [], 0
    for from_s, to_s in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        while position + 1 < len(steps) and steps[position + 1][0] <= from_s:
            position += 1
        found.append(_part(steps, position, from_s, to_s))
    return found


def _part(steps: Sequence[tuple[float, float]], first: int, from_s: float, to_s: float) -> Part:
    """One part; step `first` is the one that is in force at from_s."""
    values, area, at_s, position = [], 0.0, from_s, first
    while True:
        value = steps[position][1]
        values.append(value)
        ends = steps[position + 1][0] if position + 1 < len(steps) else to_s
        area += value * (min(ends, to_s) - at_s)
        if ends >= to_s:
            return Part(min(values), area / (to_s - from_s), max(values))
        at_s, position = ends, position + 1
