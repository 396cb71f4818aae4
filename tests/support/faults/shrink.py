"""Shortens the plan of a life that fails: leaves out actions as long as it still fails in the same way."""

import time
from collections.abc import Callable, Sequence

from support.faults.plan import Action

Fails = Callable[[Sequence[Action]], bool]


def shrunk(plan: Sequence[Action], fails: Fails, within_s: float) -> list[Action]:
    """A part of a plan that fails, from which no piece that was tried could be left out (ddmin, Zeller 2002)."""
    until = time.monotonic() + within_s
    kept, pieces = list(plan), 2
    while len(kept) > 1 and time.monotonic() < until:
        size = -(-len(kept) // pieces)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if time.monotonic() < until and fails(rest):
                kept, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                return kept
            pieces = min(len(kept), pieces * 2)
    return kept
