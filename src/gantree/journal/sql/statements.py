"""Statements of every turn as text, compiled once for each kind of database and run on the driver's own cursor.

SQLAlchemy writes the SQL and owns connections and transactions. What it does around a statement costs ten times what
SQLite takes to run it, so statements that a submission waits for go past that; all others do not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql.expression import ClauseElement

Row = tuple[Any, ...]
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement as a driver takes it. values makes what goes in of what is given."""

    text: str
    values: Callable[[Values], Any]


class Statement:
    """One statement, or one for each dialect where they differ (`of`: its name -> the statement, made when needed)."""

    def __init__(self, of: ClauseElement | Callable[[str], ClauseElement]) -> None:
        self._of = of
        self._text_of_dialect: dict[str, _Text] = {}

    def rows(self, connection: Connection, given: Values) -> list[Row]:
        """What it finds."""
        return fetched(self.sent(connection, given))

    def sent(self, connection: Connection, given: Values) -> Any:
        """Send it, and do not wait where the connection sends several at once; `fetched` gives what it finds."""
        told = self._told(connection.dialect)
        cursor = _cursor(connection)
        try:
            cursor.execute(told.text, told.values(given))
        except BaseException:
            cursor.close()
            raise
        return cursor

    def run(self, connection: Connection, many: Sequence[Values]) -> None:
        """Run it once with each of these values."""
        told = self._told(connection.dialect)
        cursor = _cursor(connection)
        try:
            cursor.executemany(told.text, [told.values(given) for given in many])
        finally:
            cursor.close()

    def _told(self, dialect: Dialect) -> _Text:
        known = self._text_of_dialect.get(dialect.name)
        if known is None:
            of = self._of
            statement = of if isinstance(of, ClauseElement) else of(dialect.name)
            compiled: Any = statement.compile(dialect=dialect, for_executemany=True)
            places = tuple(compiled.positiontup) if compiled.positional else None
            known = _Text(str(compiled), _values(compiled.params, places))
            self._text_of_dialect[dialect.name] = known
        return known


def fetched(cursor: Any) -> list[Row]:
    """The rows of a cursor, which is used no more."""
    try:
        found: list[Row] = cursor.fetchall()
    finally:
        cursor.close()
    return found


def _values(written: Values, places: Sequence[str] | None) -> Callable[[Values], Any]:
    """How a driver takes values: in order of the names in places, by name where there are none.

    written are those of the statement itself, and None for each that is given. For many rows it is worth it to do
    without them.
    """
    fixed = {name: value for name, value in written.items() if value is not None}
    if places is None:
        return lambda given: {**fixed, **given}
    if not fixed and len(places) > 1:
        return itemgetter(*places)
    return lambda given: tuple([{**fixed, **given}[name] for name in places])


def _cursor(connection: Connection) -> Any:
    return connection.connection.cursor()
