"""The SQLite journal: the contract, and what is particular to a file: locks, modes, versions, damage."""

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.journal.contract import Journal
from gantree.journal.sql.tables import VERSION
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.journal.state_directory import LOCK
from gantree.model.errors import JournalError
from gantree.model.events import Event
from gantree.testing.compaction_contract import CompactionContract, at_turn, lived
from gantree.testing.journal_contract import JournalContract, ended, led, stop, tick
from gantree.testing.leadership_contract import LeadershipContract
from support.daemon import Program
from support.examples import examples


class TestSqlite(JournalContract, LeadershipContract, CompactionContract):
    def open(self, place: Path) -> Journal:
        return SqliteJournal(place)


def written(place: Path) -> Path:
    """A journal with two events and two facts, closed."""
    journal = SqliteJournal(place)
    epoch = led(journal)
    journal.append_inbox([tick(1), tick(2)], epoch)
    journal.commit_turn(2, [ended(1), ended(2)], [], epoch)
    journal.close()
    return place / FILE


def test_a_second_daemon_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    first = SqliteJournal(tmp_path)
    with pytest.raises(JournalError, match=f"in use by another daemon .process {os.getpid()}"):
        SqliteJournal(tmp_path)
    first.close()
    SqliteJournal(tmp_path).close()


def test_the_lock_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from gantree.journal.sqlite import SqliteJournal\n"
        "journal = SqliteJournal(Path(sys.argv[1])); print('open', flush=True); time.sleep(60)"
    )
    with Program("-c", code, str(tmp_path)) as holder:
        holder.says("open")
        with pytest.raises(JournalError, match=f"process {holder.process.pid}"):
            SqliteJournal(tmp_path)
        holder.process.kill()
        holder.process.wait()
    SqliteJournal(tmp_path).close()


def test_files_belong_to_the_user_alone(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "state"
    journal = SqliteJournal(place)
    journal.append_inbox([tick(1)], led(journal))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert set(modes) == {FILE, LOCK, f"{FILE}-wal", f"{FILE}-shm"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    journal.close()


def test_commits_wait_for_the_disk(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    with journal.database.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    journal.close()


def pace(journal: SqliteJournal) -> int:
    """How the connection of transactions is synchronised: 1 for NORMAL, 2 for FULL."""
    with journal.database.writing() as connection:
        told: int = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    return told


def test_only_what_is_told_again_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even once that has failed: who comes next waits again."""
    journal, paces = SqliteJournal(tmp_path), []
    epoch, append = led(journal), journal.append_inbox

    def noting(events: Sequence[Event], epoch: int) -> None:
        paces.append(pace(journal))
        append(events, epoch)

    monkeypatch.setattr(journal, "append_inbox", noting)
    journal.append_emitted([tick(1)], epoch)
    journal.append_inbox([tick(2)], epoch)
    with pytest.raises(JournalError, match="is over"):
        journal.append_emitted([tick(3)], epoch - 1)
    journal.append_inbox([tick(4)], epoch)
    assert (paces, pace(journal)) == ([1, 2, 1, 2], 2)
    journal.close()


def test_transactions_share_a_connection_until_one_fails_on_it_and_nothing_of_that_one_is_left(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal(tmp_path)
    led(journal)
    used: list[object] = []
    for fails in (False, False, True, False, False):
        with suppress(ZeroDivisionError), journal.database.writing() as connection:
            used.append(connection.connection.driver_connection)
            connection.exec_driver_sql("UPDATE leadership SET holder = holder || '+'")
            assert not fails or 1 / 0
    first, again, third, fourth, fifth = used
    assert first is again is third is not fourth is fifth
    assert journal.leader()[1] == "a test++++"
    journal.close()


def test_a_newer_journal_is_refused_unchanged(tmp_path: Path) -> None:
    path = written(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="newer gantree"):
        SqliteJournal(tmp_path)
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir() if "-" not in each.name) == [LOCK, FILE]


def test_a_refused_journal_gives_its_lock_back(tmp_path: Path) -> None:
    path = written(tmp_path)
    for version, refused in ((99, True), (VERSION, False)):
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {version}")
        if refused:
            with pytest.raises(JournalError):
                SqliteJournal(tmp_path)
        else:
            SqliteJournal(tmp_path).close()


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="no journal of gantree"):
        SqliteJournal(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["fact", "event"])
def test_a_kind_or_version_of_the_future_is_refused(tmp_path: Path, kind: str) -> None:
    table = {"fact": "facts", "event": "inbox"}[kind]
    path = written(tmp_path)
    for change in ("version = 99", "version = 1, kind = 'MindRead'"):
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"UPDATE {table} SET {change} WHERE seq = 2")
            db.commit()
        journal = SqliteJournal(tmp_path)
        with pytest.raises(JournalError, match="newer gantree"):
            list(journal.facts()) if kind == "fact" else journal.read_inbox(0, 9)
        journal.close()


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE facts SET data = \'{"at": "soon"}\' WHERE seq = 2',
        "UPDATE facts SET data = 'rubbish' WHERE seq = 2",
        "DELETE FROM facts WHERE seq = 1",
        "DROP TABLE facts",
    ],
)
def test_damaged_facts_are_a_journal_error(tmp_path: Path, damage: str) -> None:
    path = written(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(damage)
        db.commit()
    journal = SqliteJournal(tmp_path)
    with pytest.raises(JournalError):
        list(journal.facts())
    journal.close()


def test_a_damaged_snapshot_is_passed_over_unless_facts_before_it_are_gone(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    epoch = led(journal)
    lived(journal, epoch)
    for turn in (2, 3):
        journal.save_snapshot(at_turn(turn), epoch)
    damage = "UPDATE snapshots SET text = 'x' WHERE turn = {}"
    with journal.database.reading() as connection:
        connection.exec_driver_sql(damage.format(3))
    assert journal.latest_snapshot() == at_turn(2)
    assert journal.compact(6, epoch).facts == 4, "no more than the readable one covers"
    journal.save_snapshot(at_turn(3), epoch)
    journal.save_snapshot(at_turn(4), epoch)
    assert journal.compact(8, epoch).facts == 4
    with journal.database.reading() as connection:
        connection.exec_driver_sql(damage.format(4))
    with pytest.raises(JournalError, match="facts up to 8 were compacted, and no snapshot"):
        journal.latest_snapshot()
    journal.close()


def test_a_file_that_is_no_database_is_a_journal_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all, " * 100)
    with pytest.raises(JournalError, match="not a database"):
        SqliteJournal(tmp_path)


def test_a_page_of_rubbish_is_a_journal_error(tmp_path: Path) -> None:
    path = written(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (size - 4096))
    with pytest.raises(JournalError):
        journal = SqliteJournal(tmp_path)
        try:
            list(journal.facts())
        finally:
            journal.close()


def test_a_start_that_was_cut_off_before_the_tables_is_finished(tmp_path: Path) -> None:
    (tmp_path / FILE).touch(mode=0o600)
    journal = SqliteJournal(tmp_path)
    journal.append_inbox([tick(1)], led(journal))
    journal.close()


@settings(max_examples=examples(25), deadline=None)
@given(cut=st.floats(0, 1))
def test_a_log_that_was_torn_anywhere_leaves_whole_turns(
    tmp_path_factory: pytest.TempPathFactory, cut: float
) -> None:
    """Power fails while the write-ahead log grows: what is left of it ends at some byte."""
    place, copy = tmp_path_factory.mktemp("journal"), tmp_path_factory.mktemp("copy")
    journal = SqliteJournal(place)
    epoch = led(journal)
    for turn in range(1, 5):
        journal.append_inbox([tick(turn)], epoch)
        journal.commit_turn(turn, [ended(turn), ended(-turn)], [stop(turn, epoch)], epoch)
    for suffix in ("", "-wal"):
        shutil.copy(place / f"{FILE}{suffix}", copy)
    journal.close()
    log = copy / f"{FILE}-wal"
    os.truncate(log, int(cut * log.stat().st_size))
    torn = SqliteJournal(copy)
    turns = torn.turns()
    assert torn.cursor() == turns
    assert turns <= len(torn.read_inbox(0, 9)) <= turns + 1
    assert len(list(torn.facts())) == 2 * turns
    assert [order.attempt for _, order in torn.orders()] == list(range(1, turns + 1))
    torn.close()


def test_what_is_damaged_is_said_in_one_line_with_a_way_out(tmp_path: Path) -> None:
    path = written(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE facts SET data = '{\"at\": 1.0}' WHERE seq = 2")
        db.commit()
    journal = SqliteJournal(tmp_path)
    with pytest.raises(JournalError) as caught:
        list(journal.facts())
    journal.close()
    assert str(caught.value).endswith("in the journal is damaged: job: Field required")
    path.write_bytes(b"\xff" * 5000)
    with pytest.raises(JournalError, match="; restore it from a copy, or use another") as caught:
        SqliteJournal(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_state_directory_that_is_a_file_is_a_journal_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(JournalError, match="cannot be a state directory: file exists"):
        SqliteJournal(tmp_path / "state")


def test_a_file_system_without_locks_is_not_taken_for_another_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(JournalError, match="cannot be a state directory: no locks available"):
        SqliteJournal(tmp_path)


def test_a_lock_that_a_killed_daemon_left_to_its_last_child_is_waited_for(tmp_path: Path) -> None:
    """The child holds it between its fork and its command, for a moment."""
    left = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(left, fcntl.LOCK_EX)
    child = subprocess.Popen(["sleep", "0.3"], pass_fds=[left])
    os.close(left)
    with closing(SqliteJournal(tmp_path)):
        assert child.wait() == 0
