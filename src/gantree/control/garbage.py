"""Garbage collection in a leading daemon and in readers.

Python's own way takes the longer the more is alive, and stops all threads.

Nearly all that is alive is the ledger, none of which is garbage while it rules. So what has survived is set apart from
time to time: the collector does not look at it again, and each look takes milliseconds however many jobs there are.
What was set apart is still freed as soon as nothing refers to it; what refers to itself is not, until it is taken back.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SURVIVED = 6
"""So many collections of the middle generation are between two of these; at eleven Python looks through all."""


def set_all_apart() -> None:
    """What is alive now will stay."""
    gc.freeze()


def set_survivors_apart() -> None:
    """The same once enough has been made since the last time, without what is garbage by then. Call it often."""
    if gc.get_count()[2] >= SURVIVED:
        gc.collect()
        gc.freeze()


def take_back() -> None:
    """A ledger was thrown away: the next collection is a long one, and may have it."""
    gc.unfreeze()


@contextmanager
def without_collecting() -> Iterator[None]:
    """What a start makes, by imports, of a journal or a cluster, is no garbage: to look for some takes time in vain."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
