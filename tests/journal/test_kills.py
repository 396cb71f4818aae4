"""kill -9 in the middle of what takes many statements: a snapshot, a compaction, a migration, on both databases.

A forked process is killed right after each of its statements, one process for each; what the next finds must be whole.
"""

import os
import shutil
import signal
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import alembic.command  # noqa: F401  # once here, not in every process that migrates
import pytest
from sqlalchemy import Engine, event

from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.journal.contract import Snapshot
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.postgres import PostgresJournal, PostgresReader
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.tables import VERSION
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.journal.verify import verify
from gantree.model.errors import JournalError
from gantree.policy.rules import Policy
from gantree.testing.journal_contract import ended, led, stop, tick
from support.examples import IS_SOAK
from support.older_journals import older_database

TURNS = 4
STEP = 1 if IS_SOAK else 2
"""A soak kills after each statement of a snapshot or a compaction, the suite after every other one."""
EVERY = 3
"""Of the statements of a migration, most of which look at tables, one in so many."""
EVERY_IN_DATABASE = {False: 2, True: 7}
"""The same in a database, where its tables are made (False) and where they are migrated."""
OLDEST = Path(__file__).parents[1] / "data" / "journals" / "version-1.sqlite3"
Open = Callable[[], SqlJournal]


def dies_after(statement: int, work: Callable[[], object]) -> bool:
    """Whether a process that does this got as far as a statement, and was killed there."""
    child = os.fork()
    if child == 0:
        _work_until(statement, work)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status != 0


def _work_until(statement: int, work: Callable[[], object]) -> None:
    number = count(1)

    @event.listens_for(Engine, "after_cursor_execute")
    def _(*_: object) -> None:
        if next(number) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


@pytest.fixture(params=["sqlite", "postgres"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: SqliteJournal(tmp_path)
    url: str = request.getfixturevalue("database_url")
    return lambda: PostgresJournal(url)


def snapshot_at(turn: int) -> Snapshot:
    """Of a turn that ends with the event and the fact of its number."""
    text = SnapshotCodec().encode(snapshot_of(Scheduler(Policy())))
    return Snapshot(seq=turn, cursor=turn, turns=turn, text=text)


def write_turns(opens: Open) -> None:
    with closing(opens()) as journal:
        epoch = led(journal)
        for turn in range(1, TURNS + 1):
            journal.append_inbox([tick(turn)], epoch)
            journal.commit_turn(turn, [ended(turn)], [stop(turn, epoch)], epoch)
        journal.save_snapshot(snapshot_at(TURNS), epoch)
        journal.append_inbox([tick(TURNS + 1)], epoch)
        journal.commit_turn(TURNS + 1, [ended(TURNS + 1)], [], epoch)
        journal.resign(epoch)


def snapshot(opens: Open) -> None:
    with closing(opens()) as journal:
        journal.save_snapshot(snapshot_at(TURNS + 1), led(journal))


def compact(opens: Open) -> None:
    with closing(opens()) as journal:
        journal.compact(TURNS, led(journal))


DONE: dict[Callable[[Open], None], tuple[int, int]] = {
    snapshot: (TURNS + 1, 0),
    compact: (TURNS, TURNS),
}
"""Once it has come to its end: up to which fact there is a snapshot, and are none any more."""


@pytest.mark.parametrize("work", DONE)
def test_a_snapshot_or_a_compaction_that_is_killed_after_any_statement_loses_nothing(
    opens: Open, work: Callable[[Open], None]
) -> None:
    write_turns(opens)
    statement = 1
    while dies_after(statement, lambda: work(opens)):
        with closing(opens()) as journal:
            assert (statement, verify(journal).faults) == (statement, [])
            found = journal.latest_snapshot()
            assert found is not None and found.seq in (TURNS, TURNS + 1)
            assert len(journal.seen([tick(each).id for each in range(1, TURNS + 2)])) == TURNS + 1
            assert [each.seq for each in journal.facts(journal.compacted_to())] == list(
                range(journal.compacted_to() + 1, TURNS + 2)
            )
            journal.resign(journal.leader()[0])
        statement += STEP
    assert statement > 5
    with closing(opens()) as journal:
        found = journal.latest_snapshot()
        assert found is not None
        assert (found.seq, journal.compacted_to()) == DONE[work]


def older_file(place: Path) -> None:
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        (place / name).unlink(missing_ok=True)
    shutil.copy(OLDEST, place / FILE)


def test_a_migration_that_is_killed_after_any_statement_leaves_a_journal_that_opens(
    tmp_path: Path,
) -> None:
    statement = 1
    older_file(tmp_path)
    while dies_after(statement, lambda: SqliteJournal(tmp_path).close()):
        with closing(sqlite3.connect(tmp_path / FILE)) as file:
            version = file.execute("PRAGMA user_version").fetchone()[0]
        assert version in (1, VERSION)
        with closing(SqliteJournal(tmp_path)) as journal:
            assert (statement, verify(journal).faults, journal.turns()) == (statement, [], 3)
        statement += EVERY
        older_file(tmp_path)
    assert statement > 5 * EVERY


@pytest.mark.parametrize("is_older", [False, True])
def test_tables_that_are_made_or_migrated_in_a_database_are_whole_or_untouched_after_any_statement(
    database_url: str, *, is_older: bool
) -> None:
    """Whoever is killed has told the server nothing of a COMMIT; whoever comes then begins anew."""
    if is_older:
        older_database(database_url, 1, OLDEST)
    untouched = "older gantree .schema 1," if is_older else "holds no journal"
    statement = 1
    while dies_after(statement, lambda: PostgresJournal(database_url).close()):
        with pytest.raises(JournalError, match=untouched):
            PostgresReader(database_url)
        statement += EVERY_IN_DATABASE[is_older]
    assert statement > 3 * EVERY_IN_DATABASE[is_older]
    with closing(PostgresJournal(database_url)) as journal:
        assert (verify(journal).faults, journal.turns()) == ([], 3 if is_older else 0)
