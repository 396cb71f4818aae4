"""The tree of errors that the caller or the environment causes.

    GantreeError
    ├── BadInput          a file, a field or an argument is wrong; names where, what was found, what is allowed
    │   ├── BadFields     several of them in one file
    │   └── TooLarge      more than is taken in one request
    ├── Unsupported       a valid wish that this version cannot fulfil
    ├── Unauthenticated   nobody says who asks
    ├── Forbidden         who asks may not do it
    ├── NotFound          no such job, node, rank or file
    ├── Conflict          the state forbids it (a name that is taken, a job that has ended)
    │   ├── Stale         it is not as the caller saw it last
    │   └── EventIdReused an event has the id of another event on record
    ├── TooOften          more requests than a caller may make
    ├── Unreachable       no daemon, no driver, no machine answers
    ├── TooLong           no answer was found in the time that one may take
    └── JournalError      the journal is damaged, locked, or newer than this program
        └── NotLeading    another daemon leads this journal, or nobody does for the moment

A *refusal* to place a gang is no error but a value (`verdicts.Refused`). An `AssertionError` is our own bug.
Errors carry data in fields; the sentence is made from them in one place.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class GantreeError(Exception):
    """Base of all errors that gantree raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a file: where, what was found, what is allowed, and a suggestion."""

    source: str
    line: int | None
    field: str
    found: str
    allowed: str
    hint: str = ""

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        hint = f" {self.hint}" if self.hint else ""
        return f"{where}: {self.field}: found {self.found}; allowed: {self.allowed}.{hint}"


class BadInput(GantreeError):
    """A file, field or argument is wrong."""


class BadFields(BadInput):
    """One or more fields of a file are invalid; nothing was loaded."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class TooLarge(BadInput):
    """A request exceeds the size limit."""


class Unsupported(GantreeError):
    """A valid request that this version does not support."""


class Unauthenticated(GantreeError):
    """The request has no valid credentials."""


class Forbidden(GantreeError):
    """The caller is not permitted to do it."""


class NotFound(GantreeError):
    """No such job, node, rank or file."""


class Conflict(GantreeError):
    """The current state forbids the request."""


class Stale(Conflict):
    """The object changed since the caller read it."""


class EventIdReused(Conflict):
    """Events have ids of other events on record. events are those that were not taken: (id, kind) of each."""

    def __init__(self, sentence: str, events: Sequence[tuple[str, str]] = ()) -> None:
        self.events = tuple(events)
        super().__init__(sentence)

    @classmethod
    def of(cls, events: Sequence[tuple[str, str]]) -> "EventIdReused":
        """Name the events."""
        named = ", ".join(f"{kind} {event_id}" for event_id, kind in events)
        return cls(f"not taken, as other events are on record under their ids: {named}", events)


class TooOften(GantreeError):
    """The caller exceeded its rate limit."""


class Unreachable(GantreeError):
    """No daemon, driver or machine answers."""


class TooLong(GantreeError):
    """The answer took longer than its time limit."""


class JournalError(GantreeError):
    """The journal is damaged, locked, or was written by a newer version."""


class NotLeading(JournalError):
    """Only the leader can do it. Nothing was done. leader is its name and URL, if known."""

    def __init__(self, sentence: str, leader: str | None = None, url: str | None = None) -> None:
        self.leader = leader
        self.url = url
        super().__init__(sentence)
