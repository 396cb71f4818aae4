"""A bug of the core: an event on which it asserts, each time, after it has changed its memory.

Nothing in production code knows of it: while a life runs, `Scheduler.handle` of this process is one that has the bug.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gantree.core.scheduler import Decision, Scheduler
from gantree.model.events import Event, LabelRequested

LABEL = "poison"
"""Label that an event sets on a node to set off the bug."""


@contextmanager
def buggy_core() -> Iterator[None]:
    """A core with the bug, in this block."""
    handle = Scheduler.handle

    def handle_with_bug(scheduler: Scheduler, events: Sequence[Event]) -> Decision:
        decision = handle(scheduler, events)
        for event in events:
            assert not is_poison(event), f"a bug of the core on {event.id}"
        return decision

    Scheduler.handle = handle_with_bug  # type: ignore[method-assign, assignment]  # undone below
    try:
        yield
    finally:
        Scheduler.handle = handle  # type: ignore[method-assign]  # as above


def is_poison(event: Event) -> bool:
    """Whether the core asserts on an event."""
    return isinstance(event, LabelRequested) and any(key == LABEL for key, _ in event.labels)
