"""Verifying finds what is wrong and says where; writing out is the whole journal as JSON."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import LedgerSnapshot, snapshot_of
from gantree.journal.contract import Snapshot
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.export import export
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.tables import VERSION
from gantree.journal.sqlite import FILE, SqliteJournal, SqliteReader
from gantree.journal.verify import verify
from gantree.model.errors import JournalError
from gantree.policy.rules import Policy
from gantree.testing.compaction_contract import lived
from gantree.testing.journal_contract import led, tick

NOTHING = SnapshotCodec().encode(snapshot_of(Scheduler(Policy())))
"""A snapshot of a ledger in which there is nothing."""


def written(journal: SqlJournal) -> None:
    """Four turns with two facts and an order each, five events, a snapshot after turn 3."""
    epoch = led(journal)
    lived(journal, epoch)
    journal.set_aside(5, "AssertionError: no", epoch)
    journal.save_snapshot(Snapshot(seq=6, cursor=3, turns=3, text=NOTHING), epoch)


def faults(place: Path) -> list[str]:
    journal = SqliteReader(place)
    found = [str(fault) for fault in verify(journal).faults]
    journal.close()
    return found


DAMAGE = {
    "UPDATE facts SET data = 'rubbish' WHERE seq = 2": ["facts row 2: JobEnded in the journal is damaged"],
    "UPDATE orders SET version = 99 WHERE seq = 3": ["orders row 3: StopGang version 99 was written by a newer"],
    "UPDATE inbox SET kind = 'Sung' WHERE seq = 1": ["inbox row 1: Sung version 1 was written by a newer"],
    "DELETE FROM facts WHERE seq = 4": ["facts row 5: the row before it is 3; what was between is missing"],
    "DELETE FROM facts WHERE seq = 8": ["facts: it ends with row 7, and turns say 8"],
    "DELETE FROM orders WHERE seq = 1": ["orders row 2: the row before it is 0"],
    "UPDATE facts SET turn = 9 WHERE seq = 3": ["facts row 3: it is of turn 9", "facts row 4: it is of turn 2"],
    "DELETE FROM inbox WHERE seq = 2": ["inbox row 3: the row before it is 1"],
    "UPDATE inbox SET observed_at = 0.5 WHERE seq = 4": ["inbox row 4: time goes back", "inbox row 4: its id or time"],
    "UPDATE inbox SET id = 'other' WHERE seq = 4": ["inbox row 4: its id or time is not what its data say"],
    "UPDATE inbox SET data = '' WHERE seq = 4": ["inbox row 4: TimePassed in the journal is damaged"],
    "DELETE FROM turns WHERE turn = 1": ["turns row 2: the turns before it are missing"],
    "DELETE FROM turns WHERE turn = 3": ["turns row 4: the row before it is 2"],
    "UPDATE turns SET cursor = 0 WHERE turn = 3": ["turns row 3: epoch, cursor or counts go back"],
    "UPDATE turns SET cursor = 7 WHERE turn = 4": ["turns row 4: the cursor is beyond the last event, 5"],
    "UPDATE set_aside SET seq = 6": ["set_aside row 6: there is no such event"],
    "UPDATE leadership SET epoch = 0": ["leadership row 1: it says epoch 0, and 1 has begun"],
    "UPDATE snapshots SET text = 'seven'": ["snapshots row 3: its text is damaged"],
    "UPDATE compacted SET fact = 7": ["facts row 1: rows up to 7 were compacted", "snapshots: journal"],
}  # fmt: skip


def test_a_journal_as_it_is_written_has_no_fault(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    written(journal)
    report = verify(journal)
    assert report.faults == []
    assert report.rows == {
        "inbox": 5, "turns": 4, "facts": 8, "orders": 4, "set_aside": 1, "epochs": 1, "snapshots": 1,
    }  # fmt: skip
    journal.compact(100, led(journal))
    assert verify(journal).faults == []
    journal.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a journal without faults."""
    place = tmp_path_factory.mktemp("whole")
    journal = SqliteJournal(place)
    written(journal)
    journal.close()
    return (place / FILE).read_bytes()


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_kind_of_damage_is_found_and_its_row_named(
    tmp_path: Path, whole: bytes, damage: str
) -> None:
    (tmp_path / FILE).write_bytes(whole)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute(damage)
        db.commit()
    found = faults(tmp_path)
    for expected in DAMAGE[damage]:
        assert any(fault.startswith(expected) for fault in found), found


def test_a_page_of_the_file_that_was_overwritten_is_found(tmp_path: Path, whole: bytes) -> None:
    pages = len(whole) // 4096
    rubbish = whole[: 4096 * (pages - 2)] + b"\xff" * 4096 + whole[4096 * (pages - 1) :]
    (tmp_path / FILE).write_bytes(rubbish)
    try:
        assert faults(tmp_path) != []
    except JournalError as error:
        assert "malformed" in str(error)


def test_what_is_written_meanwhile_is_no_fault(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    written(journal)
    reader = SqliteReader(tmp_path)
    checking = verify(reader)
    journal.append_inbox([tick(6, at=9)], led(journal))
    assert checking.faults == verify(reader).faults == []
    reader.close()
    journal.close()


def test_the_export_is_every_row_as_json(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    written(journal)
    journal.append_inbox([tick(7, at=float("inf"))], led(journal))
    lines = [json.loads(line, parse_constant=pytest.fail) for line in export(journal)]
    journal.close()
    assert lines[0] == {"gantree_journal": VERSION, "compacted_to": 0}
    assert [line["table"] for line in lines[1:]].count("facts") == 8
    (fact,) = [line for line in lines[1:] if line["table"] == "facts" and line["seq"] == 8]
    assert (fact["kind"], fact["turn"], fact["data"]["reason"]) == ("JobEnded", 4, "é ✓")
    (last,) = [line for line in lines[1:] if line["table"] == "inbox" and line["seq"] == 6]
    assert last["observed_at"] == last["data"]["observed_at"] == "Infinity"


def test_both_work_on_postgres(database_url: str) -> None:
    journal = PostgresJournal(database_url)
    written(journal)
    assert verify(journal).faults == []
    assert len(list(export(journal))) == 1 + 1 + 5 + 1 + 4 + 8 + 4 + 1
    journal.close()


def test_a_snapshot_of_a_newer_program_is_found_though_its_digest_is_right(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    epoch = led(journal)
    lived(journal, epoch)
    newer = NOTHING.replace(f'"version": {LedgerSnapshot.VERSION}', '"version": 99', 1)
    journal.save_snapshot(Snapshot(seq=6, cursor=3, turns=3, text=newer), epoch)
    (fault,) = verify(journal).faults
    assert str(fault).startswith("snapshots row 3: a snapshot of version 99 was written by a newer")
    journal.close()
