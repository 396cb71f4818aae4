"""JSON text to the same plain data as YAML text: `Table` and `Rows` with paths.

Lines are not known: programs write JSON, often in one line, and no person looks for line 1. A path such as
`items[12].metadata.name` tells where. Line 0 stands for "not known"; `records` leaves it out of errors.
"""

import json
from typing import Any

from gantree.model.errors import BadFields, Problem
from gantree.text.document import MAX_DEPTH, Rows, Table, path_below

UNKNOWN_LINE = 0
_EXPECTED = {
    "value": "a value",
    "property name enclosed in double quotes": "a field name in double quotes",
    "',' delimiter": "a `,`",
    "':' delimiter": "a `:`",
}
_FOUND = {
    "Extra data": "more text after its end",
    "Unterminated string starting at": "a text without its closing quote",
    "Invalid control character at": "a control character in a text",
    "Invalid \\escape": "an unknown escape in a text",
    "Invalid \\uXXXX escape": "a \\u without four digits in a text",
}
"""What the decoder says, in words that say what was found."""


def read_json(text: str, source: str) -> Any:
    """Return what a JSON text holds. Raises BadFields, with the line, where it is no JSON, and for a field twice."""
    try:
        value = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=_Pairs, parse_constant=_no_constant
        )
    except json.JSONDecodeError as error:
        raise BadFields([_problem(source, error.lineno, _found(error))]) from None
    except RecursionError:
        raise BadFields([_problem(source, None, f"more than {MAX_DEPTH} levels")]) from None
    except ValueError as error:  # from int() and from _no_constant
        digits = "a number of too many digits"
        found = str(error) if isinstance(error, _NoConstant) else digits
        raise BadFields([_problem(source, None, found)]) from None
    return _located(value, "", source, 0)


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object in the order in which they were written, doubles too."""


class _NoConstant(ValueError):
    """NaN or an infinity, which JSON has no word for."""


def _no_constant(word: str) -> None:
    raise _NoConstant(f"the number {word}")


def _found(error: json.JSONDecodeError) -> str:
    """The decoder's sentence as something that was found."""
    begun, _, expected = error.msg.partition("xpecting ")
    if not begun or not expected:
        return _FOUND.get(error.msg, f"text that is no JSON ({error.msg.lower()})")
    expected = _EXPECTED.get(expected, expected)
    if error.pos >= len(error.doc.rstrip()):
        return (
            f"the end of the text where {expected} should be"
            if error.doc.strip()
            else "an empty text"
        )
    return f"text where {expected} should be"


def _problem(source: str, line: int | None, found: str) -> Problem:
    return Problem(source, line, "document", found, "JSON")


def _located(value: Any, path: str, source: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise BadFields([_problem(source, None, f"more than {MAX_DEPTH} levels")])
    if isinstance(value, _Pairs):
        table = Table(path, UNKNOWN_LINE)
        for key, entry in value:
            if key in table:
                raise BadFields(
                    [Problem(source, None, table.path_of(key), "it twice", "each field once")]
                )
            is_plain = not isinstance(entry, list)  # most are, and need no path
            table[key] = entry if is_plain else _located(entry, table.path_of(key), source, depth + 1)  # fmt: skip
        return table
    if isinstance(value, list):
        rows = Rows(path, UNKNOWN_LINE)
        rows.extend(
            _located(item, path_below(path, f"[{i}]"), source, depth + 1)
            for i, item in enumerate(value)
        )
        return rows
    return value
