"""The tree of errors that are the caller's or the world's fault.

    GantreeError
    ├── BadInput          a file, a field or an argument is wrong; names where, what was found, what is allowed
    │   ├── BadFields     several of them in one file
    │   └── TooLarge      more than is taken in one request
    ├── Unsupported       a valid wish that this version cannot fulfil
    ├── Unauthenticated   nobody says who asks
    ├── Forbidden         who asks may not do it
    ├── NotFound          no such job, node, rank or file
    ├── Conflict          the state forbids it (a name that is taken, a job that has ended)
    │   └── Stale         it is not as the caller saw it last
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
    """One thing wrong in a file: where, what was found, what is allowed, and the likely word."""

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
    """One or more fields of a file are wrong; nothing of it was loaded."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class TooLarge(BadInput):
    """More than is taken in one request."""


class Unsupported(GantreeError):
    """A valid wish that this version cannot fulfil."""


class Unauthenticated(GantreeError):
    """Nobody says who asks, or nobody who is known."""


class Forbidden(GantreeError):
    """Who asks is known, and may not do it."""


class NotFound(GantreeError):
    """No such job, node, rank or file."""


class Conflict(GantreeError):
    """The present state forbids it."""


class Stale(Conflict):
    """What is to be changed is not as the caller saw it last."""


class TooOften(GantreeError):
    """More requests than a caller may make in so short a time."""


class Unreachable(GantreeError):
    """No daemon, driver or machine answers."""


class TooLong(GantreeError):
    """No answer was found in the time that one may take."""


class JournalError(GantreeError):
    """The journal is damaged, locked, or was written by a newer version."""


class NotLeading(JournalError):
    """Only the daemon that leads may do it. Nothing was done. leader is its name and url where it answers, if known."""

    def __init__(self, sentence: str, leader: str | None = None, url: str | None = None) -> None:
        self.leader = leader
        self.url = url
        super().__init__(sentence)
