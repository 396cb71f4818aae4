"""Events between being appended and being read: nothing is decoded that this process has just written."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from gantree.journal import inbox_cache
from gantree.journal.encoding.codec import EVENT_CODEC
from gantree.journal.inbox_cache import InboxCache
from gantree.journal.sql.database import Database
from gantree.journal.sql.statements import Statement
from gantree.journal.sqlite import SqliteJournal, SqliteReader
from gantree.model.errors import JournalError
from gantree.testing.journal_contract import led, tick


def test_an_event_is_read_as_it_was_appended_and_decoded_the_next_time(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    event = tick(1)
    journal.append_inbox([event], led(journal))
    (first,), (second,) = journal.read_inbox(0, 9), journal.read_inbox(0, 9)
    assert first.event is event
    assert second.event is not event
    assert second == first
    journal.close()


def test_of_two_that_have_one_id_the_one_on_record_is_read(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    epoch, event = led(journal), tick(1)
    journal.append_inbox([event], epoch)
    journal.append_inbox([replace(event, observed_at=event.observed_at + 1.0)], epoch)
    (read,) = journal.read_inbox(0, 9)
    assert read.event == event
    journal.close()


def test_no_more_is_kept_than_so_many_and_the_others_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox_cache, "MOST", 2)
    kept, events = InboxCache(), [tick(number) for number in range(3)]
    for event in events:
        kept.keep(EVENT_CODEC.encode(event), event)
    read = [kept.take(EVENT_CODEC.encode(event)) for event in events]
    assert read == events
    assert [a is b for a, b in zip(read, events, strict=True)] == [False, True, True]


def test_an_inbox_that_was_read_to_its_end_is_not_read_again_before_something_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, looks = SqliteJournal(tmp_path), 0
    epoch = led(journal)
    reading = Database.reading

    def counted(database: Database) -> AbstractContextManager[Connection]:
        nonlocal looks
        looks += 1
        return reading(database)

    monkeypatch.setattr(Database, "reading", counted)
    read = [journal.read_inbox(0, 9) for _ in range(3)]
    assert (read, looks) == ([()] * 3, 1)
    journal.append_inbox([tick(1)], epoch)
    assert [entry.seq for entry in journal.read_inbox(0, 9)] == [1]
    assert [journal.read_inbox(1, 9) for _ in range(2)] == [(), ()]
    assert [entry.seq for entry in journal.read_inbox(0, 9)] == [1]
    assert looks == 4
    journal.close()


def test_what_was_seen_while_something_was_appended_is_outdated_whatever_became_of_that() -> None:
    kept = InboxCache()
    with kept.appending():
        during = kept.moment(0)
    assert kept.moment(0) != during
    after = kept.moment(0)
    with pytest.raises(JournalError), kept.appending():
        raise JournalError("the connection broke")
    assert kept.moment(0) != after


def test_who_follows_a_journal_that_another_writes_looks_every_time(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    epoch, reader = led(journal), SqliteReader(tmp_path)
    assert reader.read_inbox(0, 9) == ()
    journal.append_inbox([tick(1)], epoch)
    assert [entry.seq for entry in reader.read_inbox(0, 9)] == [1]
    reader.close()
    journal.close()


def test_an_append_that_was_not_heard_of_is_looked_for(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    epoch = led(journal)
    assert journal.read_inbox(0, 9) == ()
    run = Statement.run

    def breaks_after(statement: Statement, connection: Connection, rows: Any) -> None:
        run(statement, connection, rows)
        driver: Any = connection.connection.driver_connection
        driver.execute("COMMIT")
        raise JournalError("the connection broke")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(JournalError):
        patch.setattr(Statement, "run", breaks_after)
        journal.append_inbox([tick(1)], epoch)
    assert [entry.event.id for entry in journal.read_inbox(0, 9)] == ["t1"]
    journal.close()
