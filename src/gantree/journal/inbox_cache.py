"""Events between being appended and being read, which in one process is a moment: whoever reads one need not make it
anew out of its text, and whoever has read all of them need not look again before one is appended.

An event is known by what was written of it, kind and version included, so what is given is what decoding would give.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from gantree.journal.encoding.codec import EVENT_CODEC, Encoded
from gantree.model.events import Event

MOST = 4096
"""Events that are kept; the oldest are let go first, and are decoded when they are read."""


class InboxCache:
    """Events that were appended here lately and not read since. Safe for any thread."""

    def __init__(self) -> None:
        self._event_of: OrderedDict[Encoded, Event] = OrderedDict()
        self._appends = 0

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Cache events that are appended in this block, if it succeeds."""
        try:
            yield
        finally:
            self._appends += 1

    def moment(self, seq: int) -> tuple[int, int]:
        """Stands for what comes after a place in the inbox: another as soon as something was appended."""
        return seq, self._appends

    def keep(self, code: Encoded, event: Event) -> None:
        """An event was appended."""
        self._event_of[code] = event
        if len(self._event_of) > MOST:
            self._event_of.popitem(last=False)

    def take(self, code: Encoded) -> Event:
        """Return the event of a row. Raises JournalError."""
        return self._event_of.pop(code, None) or EVENT_CODEC.decode(code)
