"""The line in a file to which a Pydantic error refers.

Pydantic's locations are keys and indices, but also names of union branches, and indices into lists that it was
given in place of a single value. Here they become paths and lines of what the user wrote.
"""

from typing import Any

from gantree.text.document import Rows, Table, written
from gantree.text.words import shortened


def written_path(data: Table, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return as much of a location as is in the data, without the names of union branches."""
    value: Any = data
    path: list[int | str] = []
    for key in location:
        if isinstance(value, Table) and key in value:
            value = value[str(key)]
        elif isinstance(value, Rows) and isinstance(key, int) and key < len(value):
            value = value[key]
        elif _is_not_written(value, key):
            continue
        else:
            break
        path.append(key)
    return tuple(path)


def _is_not_written(value: Any, key: int | str) -> bool:
    """Tell whether a key is Pydantic's own: a union branch "(list)", or 0 where one stands for a list of one."""
    if isinstance(key, str):
        return key.startswith("(")
    return key == 0 and not isinstance(value, Rows)


def locate(data: Table, location: tuple[Any, ...]) -> tuple[str, int, Any]:
    """Return (dotted path, line, value) of a location, as far down as the file goes."""
    value: Any = data
    path, line = data.path, data.line
    for key in written_path(data, location):
        path, line = value.path_of(key), value.line_of(key)
        value = value[key]
    return path, line, value


def describe(value: object) -> str:
    """Return what was found, in a few words."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return f"`{shortened(written(value) or '')}`" if value != "" else "an empty text"
