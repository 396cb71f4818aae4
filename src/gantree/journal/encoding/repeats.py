"""Whether an event whose id is on record is the recorded one once more, as after a restart of its source, or another.

The times are no content: a source that starts again sees the same occurrence later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gantree.journal.encoding.codec import EVENT_CODEC, Encoded
from gantree.model.errors import JournalError
from gantree.model.events import Event


def without_repeats(
    events: Sequence[Event], on_record: Mapping[str, Encoded]
) -> tuple[list[Event], list[tuple[str, str]]]:
    """The events that are new, and (id, kind) of those that have the id of another. on_record: recorded ones by id."""
    known = dict(on_record)
    fresh: list[Event] = []
    reused: list[tuple[str, str]] = []
    for event in events:
        recorded = known.get(event.id)
        if recorded is None:
            known[event.id] = EVENT_CODEC.encode(event)
            fresh.append(event)
        elif not is_repeat(event, recorded):
            reused.append((event.id, type(event).__name__))
    return fresh, reused


def is_repeat(event: Event, recorded: Encoded) -> bool:
    """Whether an event says what the recorded one says. Of one that was compacted only the kind is left."""
    if recorded.kind != type(event).__name__ or not recorded.data:
        return recorded.kind == type(event).__name__
    try:
        before = EVENT_CODEC.decode(recorded)
    except JournalError:  # unreadable
        return False
    return _without_times(before) == _without_times(EVENT_CODEC.decode(EVENT_CODEC.encode(event)))


def _without_times(event: Event) -> Event:
    return replace(event, observed_at=0.0, occurred_at=None)
