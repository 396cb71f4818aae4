"""Creates the tables of a journal, and migrates older versions; independent of the kind of database.

Both happen inside a transaction of the caller, so a process that is killed meanwhile leaves things as they were.
Alembic takes a third of a second to import, so it is imported only where there is something to migrate.
"""

from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from gantree.journal.sql.history_tables import history_mark
from gantree.journal.sql.notification_tables import notification_mark
from gantree.journal.sql.service_week_tables import service_weeks  # noqa: F401 - so that it is created, too
from gantree.journal.sql.tables import (
    METADATA,
    VERSION,
    VERSION_TABLE,
    compacted,
    epochs,
    gantree_version,
    leadership,
)
from gantree.model.errors import JournalError

MIGRATIONS = Path(__file__).parents[1] / "migrations"


def name_of(version: int) -> str:
    """How Alembic names a version."""
    return f"{version:04}"


def create(connection: Connection) -> None:
    """Today's tables, empty."""
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(gantree_version.insert().values(version_num=name_of(VERSION)))
    connection.execute(leadership.insert().values(one=1, epoch=0, holder=None, until=0))
    connection.execute(compacted.insert().values(one=1, turn=0, fact=0, order=0, event=0))
    connection.execute(history_mark.insert().values(one=1, counted_to=0.0, rebuild_after=None))
    connection.execute(notification_mark.insert().values(one=1, cursor=None))


def migrate(connection: Connection, version: int, to: int = VERSION) -> None:
    """From an older version (0: no tables) to a later one."""
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    if version == 1:  # gantree 0.1.0 had no version table
        gantree_version.create(connection, checkfirst=True)
        connection.execute(gantree_version.delete())
        connection.execute(gantree_version.insert().values(version_num=name_of(1)))
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    if not connection.in_transaction():
        connection.begin()  # for Alembic to know: the caller's transaction is not its own to end
    command.upgrade(config, name_of(to))


def version_in(connection: Connection) -> int:
    """What the version table says. Raises JournalError for what is no version of ours."""
    row = connection.execute(gantree_version.select()).scalar_one_or_none()
    if row is None or not (row.isascii() and row.isdigit()):
        raise JournalError(f"the table {VERSION_TABLE} names no version of a journal: {row!r}")
    return int(row)


def check_today(connection: Connection, name: str) -> None:
    """Raises JournalError if the tables are not of today's version: another program has changed them meanwhile."""
    version = version_in(connection)
    if version > VERSION:
        raise newer(name, version)
    if version < VERSION:
        raise JournalError(
            f"{name} was put back to schema {version}, and this gantree's is {VERSION}"
        )


def depose(connection: Connection, now: ColumnElement[Any]) -> None:
    """End the epoch of the leader after its open transaction, because it writes to old tables."""
    found = connection.execute(
        select(leadership.c.epoch, leadership.c.holder).with_for_update()
    ).one()
    if found.holder is not None:
        epoch, holder = found.epoch + 1, "an upgrade of the tables"
        connection.execute(leadership.update().values(epoch=epoch, holder=None, until=0))
        connection.execute(epochs.insert().values(epoch=epoch, holder=holder, began_at=now))


def newer(name: str, version: int) -> JournalError:
    """The refusal of a journal from the future."""
    return JournalError(
        f"{name} was written by a newer gantree (schema {version}, not {VERSION}); it is left as it is"
    )
