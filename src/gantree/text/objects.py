"""Plain JSON values, such as a request body, as the data of a file.

The counterpart of `document` where no YAML is parsed. Paths begin with the name of the list that the objects came in.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from gantree.model.errors import BadFields, Problem
from gantree.text.document import MAX_DEPTH, NOT_TEXT, Document, Rows, Table, Truth, path_below
from gantree.text.words import shortened

_CONTAINERS = (dict, list, Mapping)


def documents_of(objects: Sequence[object], field: str, source: str) -> list[Document]:
    """A document for each object. Raises BadFields for what no file could hold: too deep, or no text."""
    return [
        Document(0, _value(each, f"{field}[{number}]", source, 0))
        for number, each in enumerate(objects)
    ]


def _value(plain: object, path: str, source: str, depth: int) -> Any:
    if isinstance(plain, str):
        return _text(plain, path, source)
    if isinstance(plain, bool):
        return Truth("true" if plain else "false")
    if isinstance(plain, float) and not isfinite(plain):
        return str(plain)
    if isinstance(plain, _CONTAINERS):
        if depth == MAX_DEPTH:
            _stop(source, path, f"more than {MAX_DEPTH} levels", "flatter values")
        return _container(plain, path, source, depth)
    return plain


def _container(
    plain: Mapping[str, object] | list[object], path: str, source: str, depth: int
) -> Table | Rows:
    if isinstance(plain, list):
        rows = Rows(path, 0)
        for number, item in enumerate(plain):
            rows.numbers.append(number)
            rows.lines.append(0)
            if not _is_plain(item):
                item = _value(item, path_below(path, f"[{number}]"), source, depth + 1)  # noqa: PLW2901 - what it becomes
            rows.append(item)
        return rows
    table = Table(path, 0)
    for key, value in plain.items():
        name = _text(key, path, source)
        table.lines[name] = 0
        is_plain = _is_plain(value)
        table[name] = value if is_plain else _value(value, table.path_of(name), source, depth + 1)
    return table


def _is_plain(value: object) -> bool:
    """Whether a value stays as it is, whatever its path: whatever Python calls printable is text."""
    return type(value) is int or (type(value) is str and value.isprintable())


def _text(text: str, path: str, source: str) -> str:
    bad = None if text.isprintable() else NOT_TEXT.search(text)
    if bad:
        _stop(source, path, f"the character U+{ord(bad.group()):04X}", "printable Unicode text")
    return text


def _stop(source: str, path: str, found: str, allowed: str) -> None:
    raise BadFields([Problem(source, None, shortened(path, 200), found, allowed)])
