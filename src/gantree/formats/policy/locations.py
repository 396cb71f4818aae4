"""Lines of a policy file by queue, for errors that are found only when the policy meets its site.

A `Policy` has no lines: most of them are made of no file. Who reads a file to rule a cluster by it keeps its places
beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gantree.formats.policy.reader import MAX_POLICY_FILE_BYTES
from gantree.formats.validation.locations import locate
from gantree.text.document import Rows, Table, read_documents, written


@dataclass(frozen=True, slots=True)
class PolicyPlaces:
    """The places of a policy file; file: None for a policy without one (a preset, one that a program made)."""

    source: str = "policy"
    file: Table | None = None

    def of(self, field: str) -> str:
        """Return "FILE:LINE: field" of a field of the policy itself."""
        return self._told((field,), field)

    def of_queue(self, queue: str, *keys: str) -> str:
        """Return "FILE:LINE: queues[0].field" of what lies at the end of keys in a queue, as far as it is written."""
        dotted = ".".join(keys)
        rows = _rows_to(self.file, queue) if self.file is not None else None
        if rows is None:
            return f"{self.source}: queue {queue}: {dotted}"
        return self._told((*rows, *keys), dotted)

    def _told(self, location: Sequence[Any], otherwise: str) -> str:
        if self.file is None:
            return f"{self.source}: {otherwise}"
        path, line, _ = locate(self.file, _in_lists(self.file, location))
        return f"{self.source}:{line}: {path or otherwise}"


NOWHERE = PolicyPlaces()


def places_of(text: str, source: str) -> PolicyPlaces:
    """Return the places of the text of a policy file that `read_policy` has read."""
    documents = read_documents(text, source, [], MAX_POLICY_FILE_BYTES)
    file = documents[0].value if documents else None
    return PolicyPlaces(source, file if isinstance(file, Table) else None)


def _rows_to(file: Table, queue: str) -> tuple[Any, ...] | None:
    """Return where a queue stands in the file; None where it does not."""
    location: tuple[Any, ...] = ()
    table: Any = file
    for name in queue.split("/"):
        rows = table.get("queues")
        found = [index for index, row in enumerate(rows or ()) if written(row["name"]) == name]
        if not found:
            return None
        location = (*location, "queues", found[0])
        table = rows[found[0]]
    return location


def _in_lists(file: Table, location: Sequence[Any]) -> tuple[Any, ...]:
    """Return a location with the number of the item that has a key, where a list of mappings stands for one mapping."""
    path: tuple[Any, ...] = ()
    value: Any = file
    for key in location:
        if isinstance(value, Rows) and isinstance(key, str):
            number = next((n for n, row in enumerate(value) if key in row), None)
            if number is None:
                break
            path, value = (*path, number), value[number]
        path = (*path, key)
        value = value[key] if _has(value, key) else None
    return path


def _has(value: Any, key: int | str) -> bool:
    if isinstance(value, Rows):
        return isinstance(key, int) and key < len(value)
    return isinstance(value, Table) and key in value
