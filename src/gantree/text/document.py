"""YAML text to plain data with line numbers.

Belongs here: everything that is true of any YAML file of ours, whatever it describes. What fields mean does not.

The text is read event by event, never composed as a whole, because the event stream can be stopped: at the first
alias (an alias bomb is never expanded), at a nesting no file of ours needs (the C composer recurses on the C
stack), at an explicit tag. Mappings become `Table`, lists `Rows`; both carry their path and the line of each entry.

Plain scalars follow the YAML 1.2 core rules, not PyYAML's 1.1 ones: `on`, `no`, `1:30` and `2024-01-01` are text,
only `true` and `false` are truths, and `010` is ten. A number remembers how it was written (`WrittenInt`,
`WrittenFloat`), since names may be numbers and node `007` is not node `7`; true and false become `Truth`, so that
no truth ever passes for a number.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import yaml

from gantree.model.errors import BadFields, Problem
from gantree.text.words import shortened

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 32
MAX_DOUBLES = 100
"""Duplicate fields that are reported before reading stops."""
MAX_PATH_CHARS = 300
"""Paths are for people, who are shown less. Each list and mapping keeps its own: long field names must not add up."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_FOUND = {
    "mapping values are not allowed in this context": "a second `:`, or a field that is indented too far",
    "mapping keys are not allowed in this context": "a field where none may be",
    "block sequence entries are not allowed in this context": "a `-` where no list may begin",
    "found character that cannot start any token": "a character that no value may begin with",
    "found unexpected end of stream": "the end of the file in an open quotation",
    "did not find expected '-' indicator": "a field among the items of a list",
    "did not find expected key": "text that is indented like no field above it, or has no `:`",
    "did not find expected node content": "no value where one should be",
}
"""What libyaml says of the usual slips, in words that say what was found."""
_FOUND_LIKE = (
    (re.compile(r"(?:did not|could not) find expected (.+)"), r"text where \1 should be"),
    (re.compile(r"expected (.+), but found (.+)"), r"\2 where \1 should be"),
    (re.compile(r"found (.+)"), r"\1"),
)
_BREAK = re.compile(r"\r\n|[\r\n]")
"""Where a line ends for an editor."""
_YAML_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
"""Where a line ends for YAML 1.1, and so for the parser."""
_RARE_BREAK = re.compile(r"[\x85\u2028\u2029]")
NOT_TEXT = yaml.reader.Reader.NON_PRINTABLE
"""Finds the first character that no file of ours may hold."""


class Table(dict[str, Any]):
    """A mapping of a file. lines holds the line of each key, lost the keys that were found wrong and taken out."""

    __slots__ = ("line", "lines", "lost", "path")

    def __init__(self, path: str, line: int) -> None:
        super().__init__()
        self.path = path
        self.line = line
        self.lines: dict[str, int] = {}
        self.lost: set[str] = set()

    def path_of(self, key: str) -> str:
        """Return the dotted path of an entry of this mapping."""
        shown = key[:MAX_PATH_CHARS] or '""'
        return path_below(self.path, f".{shown}" if self.path else shown)

    def line_of(self, key: str) -> int:
        """Return the line of an entry, or that of the mapping where it has no such entry."""
        return self.lines.get(key, self.line)


class Rows(list[Any]):
    """A list of a file. lines holds the line of each item, numbers the position at which each was written."""

    __slots__ = ("line", "lines", "lost", "numbers", "path")

    def __init__(self, path: str, line: int) -> None:
        super().__init__()
        self.path = path
        self.line = line
        self.lines: list[int] = []
        self.numbers: list[int] = []
        self.lost = False

    def path_of(self, index: int) -> str:
        """Return the dotted path of an item, by the position at which it was written."""
        number = self.numbers[index] if index < len(self.numbers) else index
        return path_below(self.path, f"[{number}]")

    def line_of(self, index: int) -> int:
        """Return the line of an item, or that of the list where it has no such item."""
        return self.lines[index] if index < len(self.lines) else self.line


class Document(NamedTuple):
    """One document of a file: the line in which it begins, and what it holds."""

    line: int
    value: Any


class WrittenInt(int):
    """A whole number that was not written the way Python prints it."""

    text: str


class WrittenFloat(float):
    """A number that was not written the way Python prints it."""

    text: str


class Truth:
    """`true` or `false`, as written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __bool__(self) -> bool:
        return self.text[0] in "tT"


def path_below(path: str, step: str) -> str:
    """Return a path with one step more, cut to MAX_PATH_CHARS."""
    return path if len(path) >= MAX_PATH_CHARS else path + step[: MAX_PATH_CHARS - len(path)]


def written(value: object) -> str | None:
    """Return a scalar as it was written, None for anything that is no scalar and for an empty one."""
    if isinstance(value, str):
        return value
    if isinstance(value, (WrittenInt, WrittenFloat, Truth)):
        return value.text
    return str(value) if isinstance(value, (int, float)) else None


def read_documents(
    text: str, source: str, problems: list[Problem], max_bytes: int = MAX_FILE_BYTES
) -> list[Document]:
    """Return the documents of a YAML text, each a Table, Rows or scalar; empty documents are left out.

    Duplicate keys are added to problems (without a source). What makes the text unreadable raises BadFields.
    """
    raw = _encoded(text, source, max_bytes)
    lines = _lines_by_yaml(text)
    builder = _Builder(source, lines)
    try:
        for event in yaml.parse(raw, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise BadFields([_syntax(error, source, text, lines)]) from None
    problems += builder.problems
    return builder.documents


def _encoded(text: str, source: str, max_bytes: int) -> bytes:
    bad = NOT_TEXT.search(text)
    if bad:
        line = len(_BREAK.findall(text, 0, bad.start())) + 1
        found = f"the character U+{ord(bad.group()):04X}"
        raise BadFields([Problem(source, line, "document", found, "printable UTF-8 text")])
    raw = text.encode()
    if len(raw) > max_bytes:
        raise BadFields([_too_large(source, max_bytes)])
    return raw


def _too_large(source: str, max_bytes: int) -> Problem:
    allowed = f"at most {max_bytes // 1024} KiB"
    return Problem(source, None, "document", "a larger file", allowed)


def _lines_by_yaml(text: str) -> Sequence[int]:
    """Return the line of the text, from 1, for each line as the parser counts them, from 0, and for one beyond."""
    if not _RARE_BREAK.search(text):
        return range(1, len(text) + 3)
    lines = [1]
    for found in _YAML_BREAK.finditer(text):
        lines.append(lines[-1] + (_RARE_BREAK.match(found.group()) is None))
    return [*lines, lines[-1] + 1]


def _syntax(error: yaml.YAMLError, source: str, text: str, by_yaml: Sequence[int]) -> Problem:
    mark = getattr(error, "problem_mark", None)
    line = by_yaml[mark.line] if mark else None
    found = _message(getattr(error, "problem", None) or "")
    context = getattr(error, "context", None)
    found += f" ({context})" if context else ""
    lines = _BREAK.split(text)
    hint = ""
    if line and line <= len(lines) and "\t" in lines[line - 1]:
        hint = "Indent with spaces, not with tabs."
    return Problem(source, line, "document", found, "YAML", hint)


def _message(problem: str) -> str:
    """The parser's sentence as something that was found: "did not find expected X" is "text where X should be"."""
    if problem in _FOUND:
        return _FOUND[problem]
    for pattern, words in _FOUND_LIKE:
        match = pattern.fullmatch(problem)
        if match:
            return match.expand(words)
    return f"text that is no YAML ({problem})" if problem else "text that is no YAML"


def scalar(text: str) -> Any:
    """Return the value of a plain (unquoted) scalar."""
    if text in _NULLS:
        return None
    if text[0] not in "0123456789+-.":
        return Truth(text) if text in _TRUTHS else text
    if _INT.fullmatch(text):
        return _number(int(text), WrittenInt, text)
    if _FLOAT.fullmatch(text):
        return _number(float(text), WrittenFloat, text)
    return text


def _number(value: Any, kind: Any, text: str) -> Any:
    if str(value) == text:
        return value
    number = kind(value)
    number.text = text
    return number


class _Builder:
    """Builds documents out of parser events, on a stack of open containers and their pending keys."""

    def __init__(self, source: str, lines: Sequence[int]) -> None:
        self.documents: list[Document] = []
        self.problems: list[Problem] = []
        self._source = source
        self._lines = lines
        self._open: list[Table | Rows] = []
        self._keys: list[str | None] = []

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._refuse_extras(event)
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._refuse_extras(event)
            self._start(event, Table if kind is yaml.MappingStartEvent else Rows)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._open.pop()
            self._keys.pop()
        elif kind is yaml.AliasEvent:
            self._stop(event, f"the alias `*{event.anchor}`", "values written out in full")

    def _refuse_extras(self, event: Any) -> None:
        if event.anchor is not None:
            self._stop(event, f"the anchor `&{event.anchor}`", "values written out in full")
        if event.tag is not None and event.tag != "!":
            self._stop(event, f"the tag `{event.tag}`", "plain values without tags")

    def _scalar(self, event: Any) -> None:
        line = self._lines[event.start_mark.line]
        if self._open and type(self._open[-1]) is Table and self._keys[-1] is None:
            self._key(self._open[-1], event.value, line)
            return
        plain = event.implicit[0]
        value = scalar(event.value) if plain else event.value
        if self._open or value is not None:
            self._put(value, line)

    def _key(self, table: Table, key: str, line: int) -> None:
        if key in table.lines:
            found = f"`{shortened(key)}` again (first in line {table.lines[key]})"
            path = shortened(table.path_of(key), 200)
            problem = Problem("", line, path, found, "each field once")
            self.problems.append(problem)
            if len(self.problems) == MAX_DOUBLES:
                raise BadFields([replace(each, source=self._source) for each in self.problems])
        self._keys[-1] = key
        table.lines.setdefault(key, line)

    def _start(self, event: Any, kind: type[Table] | type[Rows]) -> None:
        line = self._lines[event.start_mark.line]
        if len(self._open) == MAX_DEPTH:
            self._stop(event, f"more than {MAX_DEPTH} levels", "a flatter file")
        if self._open and type(self._open[-1]) is Table and self._keys[-1] is None:
            self._stop(event, "a list or mapping as a field name", "a word")
        container = kind(self._next_path(), line)
        self._put(container, line)
        self._open.append(container)
        self._keys.append(None)

    def _next_path(self) -> str:
        if not self._open:
            return ""
        parent = self._open[-1]
        if isinstance(parent, Rows):
            return path_below(parent.path, f"[{len(parent)}]")
        return parent.path_of(self._keys[-1] or "")

    def _put(self, value: Any, line: int) -> None:
        if not self._open:
            self.documents.append(Document(line, value))
            return
        parent = self._open[-1]
        if isinstance(parent, Rows):
            parent.numbers.append(len(parent))
            parent.lines.append(line)
            parent.append(value)
            return
        key = self._keys[-1]
        assert key is not None
        parent.setdefault(key, value)
        self._keys[-1] = None

    def _stop(self, event: Any, found: str, allowed: str) -> None:
        field = self._next_path() or "document"
        line = self._lines[event.start_mark.line]
        raise BadFields(
            [Problem(self._source, line, shortened(field, 200), shortened(found), allowed)]
        )
