"""Reads a mapping that another tool wrote, field by field, and reports all problems at once.

For formats that others define and extend: unknown fields are theirs and are passed over; what is asked for has a type
and a place in the file. (For files of ours, where an unknown field is an error, see `formats.forms`.) A reader asks
for what it needs; a field that is missing or of another type is noted, and a neutral value stands in until `check`
raises for all of them.
"""

import math
from collections.abc import Iterator
from typing import Any

from gantree.model.errors import BadFields, Problem
from gantree.text.document import Document, Rows, Table, read_documents, written
from gantree.text.json_text import read_json
from gantree.text.words import shortened

MAX_PROBLEMS = 100
_KINDS: tuple[tuple[type, str], ...] = ((Table, "a mapping"), (Rows, "a list"), (str, "text"))


class Report:
    """The problems of one source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []

    def add(self, line: int | None, field: str, found: str, allowed: str, hint: str = "") -> None:
        """Note a problem. A line of 0 is not known."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(self.source, line or None, field, found, allowed, hint))

    def check(self) -> None:
        """Raise BadFields if there is any problem."""
        if self.problems:
            raise BadFields(self.problems)


class Record:
    """One mapping of a source. path and line say where it stands ("" is the whole document)."""

    def __init__(self, table: Table, report: Report) -> None:
        self.table = table
        self.report = report

    @property
    def path(self) -> str:
        """The dotted path of this mapping."""
        return self.table.path

    @property
    def line(self) -> int | None:
        """The line in which this mapping begins, if known."""
        return self.table.line or None

    def line_of(self, key: str) -> int | None:
        """The line of a field, or of the mapping where there is no such field; None if not known."""
        return self.table.line_of(key) or None

    def has(self, key: str) -> bool:
        """Tell whether a field is there and not null."""
        return self.table.get(key) is not None

    def keys(self) -> tuple[str, ...]:
        """The fields, in the order in which they were written."""
        return tuple(self.table)

    def problem(self, key: str, found: str, allowed: str, hint: str = "") -> None:
        """Note what is wrong with a field."""
        self.report.add(self.table.line_of(key), self.table.path_of(key), found, allowed, hint)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a scalar as it was written.

        Where it is missing: default, or a problem if there is none. Empty text is as good as any where there is one.
        """
        value = self.table.get(key)
        if value is None and default is not None:
            return default
        word = written(value)
        if word is None or (word == "" and default is None):
            self._wrong(key, "text")
            return ""
        return word

    def integer(self, key: str, default: int | None = None, least: int = 0) -> int:
        """Return a whole number of at least `least`, also where it was written as text."""
        value = self.table.get(key)
        if value is None and default is not None:
            return default
        word = written(value) or ""
        if (
            not word.lstrip("-").isdecimal()
            or not word.isascii()
            or len(word) > 18
            or int(word) < least
        ):
            self._wrong(key, f"a whole number, {least} or more")
            return least
        return int(word)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number, also where it was written as text."""
        value = self.table.get(key)
        if value is None and default is not None:
            return default
        try:
            number = float(written(value) or "")
        except ValueError:
            number = float("nan")
        if not math.isfinite(number):
            self._wrong(key, "a number")
            return 0.0
        return number

    def texts(self, key: str) -> list[str]:
        """Return a list of scalars; empty where it is missing."""
        found = []
        for index, value in enumerate(self._rows(key)):
            word = written(value)
            if word is None or word == "":
                self._wrong_item(key, index, value, "text")
            else:
                found.append(word)
        return found

    def record(self, key: str) -> "Record | None":
        """Return a mapping below this one; None where it is missing."""
        value = self.table.get(key)
        if value is None:
            return None
        if isinstance(value, Table):
            return Record(value, self.report)
        self._wrong(key, "a mapping")
        return None

    def records(self, key: str) -> list["Record"]:
        """Return the mappings of a list; empty where it is missing."""
        found = []
        for index, value in enumerate(self._rows(key)):
            if isinstance(value, Table):
                found.append(Record(value, self.report))
            else:
                self._wrong_item(key, index, value, "a mapping")
        return found

    def texts_by_key(self, key: str) -> dict[str, str]:
        """Return a mapping of words to scalars; empty where it is missing."""
        inner = self.record(key)
        if inner is None:
            return {}
        return {name: inner.text(name, default="") for name in inner.table}

    def _rows(self, key: str) -> Rows:
        value = self.table.get(key)
        if value is None:
            return Rows(self.table.path_of(key), 0)
        if isinstance(value, Rows):
            return value
        self._wrong(key, "a list")
        return Rows(self.table.path_of(key), 0)

    def _wrong(self, key: str, allowed: str) -> None:
        found = described(self.table[key]) if key in self.table else "nothing"
        self.problem(key, found, allowed)

    def _wrong_item(self, key: str, index: int, value: Any, allowed: str) -> None:
        rows = self.table[key]
        self.report.add(rows.line_of(index), rows.path_of(index), described(value), allowed)


def described(value: Any) -> str:
    """Say what a value is, for an error."""
    word = written(value)
    if word is not None:
        return f"`{shortened(word)}`"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "nothing")


def yaml_records(text: str, report: Report) -> Iterator[Record]:
    """Yield the mappings of a YAML text: its documents, and the items of documents that are lists.

    Raises BadFields where the text is no YAML.
    """
    twice: list[Problem] = []
    documents = read_documents(text, report.source, twice)
    for problem in twice:
        report.add(problem.line, problem.field, problem.found, problem.allowed)
    for document in documents:
        yield from _records_of(document, report)


def json_records(text: str, report: Report) -> Iterator[Record]:
    """Yield the mapping that a JSON text is, or the mappings of the list that it is. Raises BadFields for no JSON."""
    yield from _records_of(Document(0, read_json(text, report.source)), report)


def _records_of(document: Document, report: Report) -> Iterator[Record]:
    if isinstance(document.value, Table):
        yield Record(document.value, report)
        return
    if not isinstance(document.value, Rows):
        report.add(
            document.line, "document", described(document.value), "a mapping or a list of mappings"
        )
        return
    for index, item in enumerate(document.value):
        if isinstance(item, Table):
            yield Record(item, report)
        else:
            line, path = document.value.line_of(index), document.value.path_of(index)
            report.add(line, path, described(item), "a mapping")
