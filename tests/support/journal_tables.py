"""The tables of a journal, for which SQLAlchemy writes the SQL once in a process and not for each journal.

That is two thirds of the CPU of a new journal, and tests make thousands.
"""

from functools import cache
from typing import Any

from sqlalchemy import Connection, event

from gantree.journal.sql import schema

_create = schema.create
_statements: dict[str, list[tuple[str, Any]]] = {}
"""What was sent to make the tables of a journal, by dialect."""


@cache
def share_table_statements() -> None:
    """Have this process, and those forked from it, write the SQL once for each kind of database."""
    schema.create = _shared


def _shared(connection: Connection) -> None:
    known = _statements.get(connection.dialect.name)
    if known is None:
        _statements[connection.dialect.name] = _sent(connection)
    else:
        for statement, parameters in known:
            connection.exec_driver_sql(statement, parameters or None)


def _sent(connection: Connection) -> list[tuple[str, Any]]:
    """Make the tables; what was sent for that."""
    sent: list[tuple[str, Any]] = []

    def note(
        _connection: object, _cursor: object, statement: str, parameters: Any, *_: object
    ) -> None:
        sent.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    _create(connection)
    event.remove(connection, "before_cursor_execute", note)
    return sent
