"""Statements of every turn, as text that is made once for each kind of database and run on the driver's own cursor.

SQLAlchemy writes the SQL and owns connections and transactions. What it does around a statement costs ten times what
SQLite takes to run it, so statements that a submission waits for go past that; all others do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql.expression import ClauseElement

Row = tuple[Any, ...]
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement as a driver takes it. places: the names of its values in order; None where it takes names."""

    text: str
    fixed: dict[str, Any]
    places: tuple[str, ...] | None

    def values(self, given: Values) -> Any:
        """What goes in, as the driver takes it."""
        every = {**self.fixed, **given}
        return every if self.places is None else tuple([every[name] for name in self.places])


class Statement:
    """One statement, or one for each dialect where they differ (`of`: its name -> the statement)."""

    def __init__(self, of: ClauseElement | Mapping[str, ClauseElement]) -> None:
        self._of = of
        self._text_of_dialect: dict[str, _Text] = {}

    def rows(self, connection: Connection, given: Values) -> list[Row]:
        """What it finds."""
        told = self._told(connection.dialect)
        cursor = _cursor(connection)
        try:
            cursor.execute(told.text, told.values(given))
            found: list[Row] = cursor.fetchall()
        finally:
            cursor.close()
        return found

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
            statement = self._of[dialect.name] if isinstance(self._of, Mapping) else self._of
            compiled: Any = statement.compile(dialect=dialect, for_executemany=True)
            places = tuple(compiled.positiontup) if compiled.positional else None
            known = _Text(str(compiled), dict(compiled.params), places)
            self._text_of_dialect[dialect.name] = known
        return known


def _cursor(connection: Connection) -> Any:
    return connection.connection.cursor()
