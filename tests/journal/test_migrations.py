"""Journals of every older version open with today's program, keep what they held, and look like new ones."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from gantree.journal.postgres import PostgresElection, PostgresJournal, PostgresReader
from gantree.journal.sql import schema
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.tables import METADATA, VERSION, VERSION_TABLE, leadership
from gantree.journal.sqlite import FILE, SqliteJournal, SqliteReader
from gantree.journal.verify import verify
from gantree.model.errors import JournalError, NotLeading
from gantree.testing.journal_contract import ended, led, tick
from support.older_journals import older_database

FILES = Path(__file__).parents[1] / "data" / "journals"
"""A SQLite journal of each older version, written by the gantree of that time."""
FIRST = FILES / "version-1.sqlite3"
OLDER = range(1, VERSION)
MESSAGE = "written by an older gantree"


def is_todays(journal: SqlJournal) -> bool:
    """Whether the tables are those of the metadata, types included.

    SQLite's integer keys are never null, whether that was written down or not.
    """
    with journal.database.reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": "of nobody", "compare_type": True}
        )
        found = compare_metadata(context, METADATA)
    differences = [each[0] if isinstance(each, list) else each for each in found]
    keys = {
        (table.name, column.name)
        for table in METADATA.tables.values()
        for column in table.primary_key
    }
    return [
        each
        for each in differences
        if not (each[0] == "modify_nullable" and (each[2], each[3]) in keys)
    ] == []


def file_of(version: int, place: Path) -> Path:
    shutil.copy(FILES / f"version-{version}.sqlite3", place / FILE)
    return place / FILE


@pytest.mark.parametrize("version", OLDER)
def test_a_file_of_an_older_gantree_keeps_all_that_it_held(tmp_path: Path, version: int) -> None:
    file_of(version, tmp_path)
    journal = SqliteJournal(tmp_path)
    assert [entry.event.id for entry in journal.read_inbox(0, 9)] == [
        "c", "a/submitted", "t2", "t3", "t4",
    ]  # fmt: skip
    assert [(aside.seq, aside.error) for aside in journal.all_set_aside()] == [
        (3, "AssertionError: no")
    ]
    assert [type(recorded.fact).__name__ for recorded in journal.facts()] == [
        "FabricDefined", "JobAccepted", "JobEnded", "JobEnded",
    ]  # fmt: skip
    assert [order.id for _, order in journal.orders()] == ["a/1/stop", "a/2/stop", "a/3/stop"]
    assert (journal.cursor(), journal.turns(), journal.last_observed_at()) == (5, 3, 6.0)
    assert journal.leader() == (2, None)
    assert verify(journal).faults == []
    assert is_todays(journal)
    journal.close()


@pytest.mark.parametrize("version", OLDER)
def test_a_file_of_an_older_gantree_goes_on(tmp_path: Path, version: int) -> None:
    file_of(version, tmp_path)
    SqliteJournal(tmp_path).close()
    journal = SqliteJournal(tmp_path)
    epoch = led(journal)
    assert epoch == 3
    journal.append_inbox([tick(4), tick(5, at=9.0)], epoch)
    journal.commit_turn(7, [ended(3)], [], epoch)
    assert [entry.event.id for entry in journal.read_inbox(5, 9)] == ["t4", "t5"]
    assert [recorded.seq for recorded in journal.facts(after=4)] == [5]
    assert verify(journal).faults == []
    journal.close()


def test_a_migration_that_is_cut_off_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(1, tmp_path)

    def half(connection: object, version: int) -> None:
        migrate(connection, version)
        raise KeyboardInterrupt

    migrate: Callable[..., None] = schema.migrate
    with monkeypatch.context() as patched:
        patched.setattr(schema, "migrate", half)
        with pytest.raises(KeyboardInterrupt):
            SqliteJournal(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    assert "leadership" not in tables
    journal = SqliteJournal(tmp_path)
    assert journal.turns() == 3
    journal.close()


def test_a_reader_leaves_an_older_file_as_it_is(tmp_path: Path) -> None:
    path = file_of(1, tmp_path)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=MESSAGE):
        SqliteReader(tmp_path)
    assert path.read_bytes() == before


def test_there_is_a_file_of_every_older_version() -> None:
    names = {path.name for path in FILES.iterdir()}
    assert names == {f"version-{version}.sqlite3" for version in OLDER}


def test_a_fresh_file_has_todays_tables(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    assert is_todays(journal)
    journal.close()


@pytest.mark.parametrize("version", OLDER)
def test_a_database_of_an_older_gantree_keeps_all_that_it_held(
    database_url: str, version: int
) -> None:
    older_database(database_url, version, FIRST)
    with pytest.raises(JournalError, match=MESSAGE):
        PostgresReader(database_url)
    journal = PostgresJournal(database_url)
    assert [entry.seq for entry in journal.read_inbox(0, 9)] == [1, 2, 4, 5, 6]
    assert [recorded.seq for recorded in journal.facts()] == [1, 2, 3, 4]
    assert (journal.cursor(), journal.turns(), journal.leader()) == (5, 3, (2, None))
    epoch = led(journal)
    journal.commit_turn(6, [ended(3)], [], epoch)
    assert [recorded.seq for recorded in journal.facts(after=4)] == [5]
    assert verify(journal).faults == []
    assert is_todays(journal)
    journal.close()


def test_a_fresh_database_has_todays_tables(database_url: str) -> None:
    journal = PostgresJournal(database_url)
    assert is_todays(journal)
    journal.close()


@pytest.mark.parametrize("version", [schema.name_of(VERSION + 1), "9999"])
@pytest.mark.parametrize("kind", [PostgresJournal, PostgresReader])
def test_a_newer_database_is_refused_unchanged(
    database_url: str, version: str, kind: type[SqlJournal]
) -> None:
    journal = PostgresJournal(database_url)
    with journal.database.reading() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
    with pytest.raises(JournalError, match="newer gantree"):
        kind(database_url)  # type: ignore[arg-type]  # both take a URL
    with journal.database.reading() as connection:
        assert connection.execute(text(f"SELECT * FROM {VERSION_TABLE}")).scalar_one() == version
    journal.close()


def test_a_newer_daemon_deposes_the_leader_whose_tables_it_changes(database_url: str) -> None:
    """Who leads by the older version goes on until it is asked: what it writes then was meant for other tables."""
    older_database(database_url, VERSION - 1, FIRST)
    with closing(
        PostgresElection(database_url, 3.0)
    ) as old:  # looks at no version before it is asked
        with old.database.writing() as connection:
            connection.execute(leadership.update().values(epoch=7, holder="old", until=9e9))
        old.append_inbox([tick(7)], 7)
        PostgresJournal(database_url).close()
        with pytest.raises(NotLeading, match="epoch 8 has begun, 7 is over"):
            old.append_inbox([tick(8)], 7)
        assert not old.renew(7, 60.0)


def test_a_daemon_of_an_older_version_does_not_come_to_lead(database_url: str) -> None:
    """It stood by while a newer one brought the tables up to date, led and went."""
    with closing(PostgresJournal(database_url)) as stood_by:
        with stood_by.database.reading() as connection:
            newer = schema.name_of(VERSION + 1)
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{newer}'"))
        with pytest.raises(JournalError, match="written by a newer gantree"):
            stood_by.lead("old", 60.0)
        assert stood_by.leader() == (0, None)
