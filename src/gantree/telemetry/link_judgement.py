"""What a source says of one link, whatever it read: the share of its rate that it carries, and how much is taken."""

from typing import NamedTuple

WITH_ERRORS = 0.9
"""The share of its rate that a link with errors is said to carry: enough that equal places without come first."""


class Judged(NamedTuple):
    """The share of its rate that a link carries, why it is less than one, and how much of that is taken."""

    health: float
    reason: str = ""
    load: float = 0.0

    @property
    def left(self) -> float:
        """The share of its rate that new traffic finds."""
        return self.health * (1.0 - self.load)
