"""Databases as older versions of gantree left them, made of the first one's SQLite file. For tests of migrations."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql import schema
from gantree.journal.sql.tables import METADATA

FIRST_TABLES = ("epochs", "inbox", "turns", "facts", "orders", "set_aside")


def older_database(url: str, version: int, first: Path) -> None:
    """Make an empty database one of that version, with the rows of first, a file of version 1."""
    journal = PostgresJournal(url)
    with journal.database.writing() as connection:
        METADATA.drop_all(connection)
        schema.migrate(connection, 0, to=1)
        with closing(sqlite3.connect(first)) as db:
            for table in FIRST_TABLES:
                read = db.execute(f"SELECT * FROM {table}")
                names = [column[0] for column in read.description]
                places = f"({', '.join(names)}) VALUES (:{', :'.join(names)})"
                insert = text(f"INSERT INTO {table} {places}")
                connection.execute(insert, [dict(zip(names, row, strict=True)) for row in read])
        if version > 1:
            schema.migrate(connection, 1, to=version)
    journal.close()
