"""A journal as JSON lines, for people, other programs and archives: a head, then each table's rows by their key.

    {"gantree_journal": 4, "compacted_to": 0}
    {"table": "facts", "seq": 1, "turn": 1, "kind": "FabricDefined", "version": 1, "data": {...}}

Infinite numbers, which JSON lacks, are the texts "Infinity" and "-Infinity".
"""

import json
from collections.abc import Iterator
from math import inf
from typing import Any

from sqlalchemy import Row

from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.tables import (
    VERSION,
    epochs,
    facts,
    inbox,
    orders,
    set_aside,
    snapshots,
    turns,
)
from gantree.journal.verify import rows_of
from gantree.model.errors import JournalError

INFINITE = {inf: "Infinity", -inf: "-Infinity"}
EXPORTED = (epochs, inbox, set_aside, turns, facts, orders, snapshots)


def export(journal: SqlJournal) -> Iterator[str]:
    """The lines, without their ends. Raises JournalError where data are no JSON, naming the row."""
    yield json.dumps({"gantree_journal": VERSION, "compacted_to": journal.compacted_to()})
    for table in EXPORTED:
        for row in rows_of(journal, table):
            yield json.dumps({"table": table.name} | _plain(table.name, row), ensure_ascii=False)


def _plain(table: str, row: Row[*tuple[Any, ...]]) -> dict[str, object]:
    """The row with its data as JSON; null for an event that was compacted."""
    values = {name: INFINITE.get(value, value) for name, value in row._mapping.items()}
    if "data" in values:
        try:
            values["data"] = json.loads(row.data, parse_constant=str) if row.data else None
        except ValueError as error:
            raise JournalError(f"{table} row {row[0]} is damaged: {error}") from error
    return values
