"""Linear programs by column generation: for the prices of GPU shares and for bounds on packing.

    maximise gain · x   subject to   A x = b,  x >= 0,  b >= 0

The program begins with one artificial column per row, at a loss that no real column has, and is widened by
`add_columns`. `solve` is the revised simplex with the inverse of the basis kept: a few hundred rows and a few thousand
columns take a second or two. Equal inputs give equal results: no randomness, ties go to the first column and row.

The right-hand side is raised by a tiny, uneven amount a row (JITTER), so that no step has length zero and the method
cannot go round in circles; read prices off the result, and primal values only to about JITTER. What must be certain is
proved by whoever uses the prices: any prices give a bound, right or wrong by rounding (weak duality).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

ARTIFICIAL_LOSS = 1e3
"""Loss of a unit of a row that no real column fills; gains and losses of real columns should be of the order of 1."""

JITTER = 1e-6
TOLERANCE = 1e-9
REINVERT_EVERY = 200
"""Steps after which the inverse is computed anew, because each update adds rounding."""


class Program:
    """A linear program in equalities that grows by columns."""

    def __init__(self, right_hand_side: FloatArray) -> None:
        rows = len(right_hand_side)
        self.right_hand_side = right_hand_side + JITTER * (1 + np.arange(rows) / max(rows, 1))
        self.columns: FloatArray = np.eye(rows)
        self.gains: FloatArray = np.full(rows, -ARTIFICIAL_LOSS)
        self.basis = np.arange(rows)
        self._inverse: NDArray[np.floating[Any]] = np.eye(rows)
        self._filled: FloatArray = self.right_hand_side.copy()

    def add_columns(self, columns: FloatArray, gains: FloatArray) -> None:
        """Add columns[row, column] with their gains."""
        assert (gains > -ARTIFICIAL_LOSS / 10).all(), "a real column as bad as an artificial one"
        self.columns = np.hstack([self.columns, columns])
        self.gains = np.concatenate([self.gains, gains])

    @property
    def prices(self) -> FloatArray:
        """prices[row]: what one more unit of b[row] would add to the gain."""
        return self.gains[self.basis] @ self._inverse

    @property
    def unfilled(self) -> float:
        """Units of rows that only artificial columns fill; more than about JITTER a row: b cannot be met."""
        return float(self._filled[self.basis < len(self.right_hand_side)].sum())

    def solve(self) -> None:
        """Go to the optimum over the columns there are. AssertionError if the gain has no limit."""
        steps = 0
        while self._step():
            steps += 1
            if steps % REINVERT_EVERY == 0:
                self._inverse = np.linalg.inv(self.columns[:, self.basis])
                self._filled = np.maximum(self._inverse @ self.right_hand_side, 0)

    def _step(self) -> bool:
        """Let the most promising column in; False if none is left."""
        gain_of_entering = self.gains - self.prices @ self.columns
        entering = int(np.argmax(gain_of_entering))
        if gain_of_entering[entering] < TOLERANCE * ARTIFICIAL_LOSS:
            return False
        direction = self._inverse @ self.columns[:, entering]
        shrinks = direction > TOLERANCE
        assert shrinks.any(), "the gain has no limit"
        lengths = np.where(shrinks, self._filled / np.where(shrinks, direction, 1), np.inf)
        leaving = int(np.argmin(lengths))
        length = lengths[leaving]
        self._filled = np.maximum(self._filled - length * direction, 0)
        self._filled[leaving] = length
        row = self._inverse[leaving] / direction[leaving]
        self._inverse -= np.outer(direction, row)
        self._inverse[leaving] = row
        self.basis[leaving] = entering
        return True
