"""`gantree journal`: what it says, what it leaves alone, and what it does beside a daemon that writes."""

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.journal.contract import Snapshot
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.sql.tables import VERSION
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.policy.rules import Policy
from gantree.testing.compaction_contract import lived
from gantree.testing.journal_contract import led, tick

Gantree = Callable[..., Any]
NOTHING = SnapshotCodec().encode(snapshot_of(Scheduler(Policy())))
"""A snapshot of a ledger in which there is nothing."""


def written(place: Path, *, snapshot: bool = True) -> None:
    """Four turns, and a snapshot after the third."""
    journal = SqliteJournal(place)
    epoch = led(journal)
    lived(journal, epoch)
    if snapshot:
        journal.save_snapshot(Snapshot(seq=6, cursor=3, turns=3, text=NOTHING), epoch)
    journal.close()


def test_a_sound_journal_is_told_to_be_sound(gantree: Gantree, tmp_path: Path) -> None:
    written(tmp_path)
    outcome = gantree("journal", "verify", "--state", tmp_path)
    assert outcome.code == 0
    assert outcome.out.startswith(f"{tmp_path / FILE}: no faults; read 5 inbox, 4 turns, 8 facts")


def test_faults_are_named_and_end_with_1(
    gantree: Gantree, tmp_path: Path, complaints: Callable[[Any, str], list[str]]
) -> None:
    written(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute("DELETE FROM facts WHERE seq = 2")
        db.commit()
    outcome = gantree("journal", "verify", "--state", tmp_path)
    assert outcome.code == 1
    assert outcome.out.splitlines()[0].startswith("facts row 3: the row before it is 1")
    assert ": 1 fault; read" in outcome.out
    as_json = gantree("journal", "verify", "--state", tmp_path, "--json")
    assert as_json.code == 1
    assert complaints(as_json.json(), "journal-verify") == []
    assert [(each["table"], each["row"]) for each in as_json.json()["faults"]] == [("facts", 3)]


def test_a_daemon_may_run_while_its_journal_is_read_and_copied(
    gantree: Gantree, tmp_path: Path
) -> None:
    written(tmp_path / "state")
    journal = SqliteJournal(tmp_path / "state")
    epoch = led(journal)
    stop = threading.Event()

    def write() -> None:
        number = 100
        while not stop.is_set():
            journal.append_inbox([tick(number, at=number)], epoch)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for word in (["verify"], ["export"], ["backup", tmp_path / "copy" / FILE]):
            (tmp_path / "copy").mkdir(exist_ok=True)
            assert gantree("journal", *word, "--state", tmp_path / "state").code == 0, word
    finally:
        stop.set()
        writer.join()
        journal.close()
    copy = SqliteJournal(tmp_path / "copy")
    assert [recorded.seq for recorded in copy.facts()] == list(range(1, 9))
    assert copy.seen(["t5"])
    copy.close()
    assert gantree("journal", "verify", "--state", tmp_path / "copy").code == 0


def test_a_backup_never_takes_the_place_of_a_file(gantree: Gantree, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "copy").write_text("precious")
    outcome = gantree("journal", "backup", tmp_path / "copy", "--state", tmp_path)
    assert outcome.code == 1
    assert "cannot be written: file exists" in outcome.err
    assert (tmp_path / "copy").read_text() == "precious"


def test_the_backup_of_what_is_no_journal_leaves_no_file(gantree: Gantree, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all, " * 100)
    outcome = gantree("journal", "backup", tmp_path / "copy", "--state", tmp_path)
    assert outcome.code == 1
    assert "not a database" in outcome.err
    assert not (tmp_path / "copy").exists()


def test_a_database_is_backed_up_by_its_own_tools(gantree: Gantree, tmp_path: Path) -> None:
    outcome = gantree("journal", "backup", tmp_path / "x", "--database", "postgresql://a@b/c")
    assert outcome.code == 2
    assert "pg_dump" in outcome.err


def test_the_export_is_lines_of_json(gantree: Gantree, tmp_path: Path) -> None:
    written(tmp_path)
    lines = [
        json.loads(line)
        for line in gantree("journal", "export", "--state", tmp_path).out.splitlines()
    ]
    assert lines[0]["gantree_journal"] == VERSION
    assert {line["table"] for line in lines[1:]} >= {"inbox", "facts", "orders", "turns"}


def test_compacting_goes_as_far_as_the_snapshot(
    gantree: Gantree, tmp_path: Path, complaints: Callable[[Any, str], list[str]]
) -> None:
    written(tmp_path)
    outcome = gantree("journal", "compact", "--state", tmp_path, "--json")
    assert outcome.json() == {"facts": 6, "orders": 3, "events": 3, "compacted_to": 6}
    assert complaints(outcome.json(), "journal-compact") == []
    again = gantree("journal", "compact", "--state", tmp_path)
    assert again.out.startswith(
        "0 facts, 0 orders and the content of 0 events were deleted; facts up to 6"
    )
    assert gantree("journal", "verify", "--state", tmp_path).code == 0


def test_without_a_snapshot_nothing_is_compacted(gantree: Gantree, tmp_path: Path) -> None:
    written(tmp_path, snapshot=False)
    outcome = gantree("journal", "compact", "--state", tmp_path)
    assert outcome.code == 1
    assert "has no snapshot yet" in outcome.err


def test_a_journal_in_use_is_not_compacted(gantree: Gantree, tmp_path: Path) -> None:
    written(tmp_path)
    journal = SqliteJournal(tmp_path)
    outcome = gantree("journal", "compact", "--state", tmp_path)
    assert outcome.code == 1
    assert "in use by another daemon" in outcome.err
    journal.close()


@pytest.mark.parametrize("command", ["verify", "export", "compact", "backup x"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    gantree: Gantree, command: str
) -> None:
    for address in ("postgresql://a:sesame@h/d", "postgresql://a@h/d?password=sesame"):
        outcome = gantree("journal", *command.split(), "--database", address)
        assert outcome.code == 2
        assert "GANTREE_DATABASE" in outcome.err
        assert "sesame" not in outcome.err + outcome.out


@pytest.mark.parametrize("command", ["verify", "export", "backup x"])
def test_a_directory_without_a_journal_is_left_without_one(
    gantree: Gantree, tmp_path: Path, command: str
) -> None:
    outcome = gantree("journal", *command.split(), "--state", tmp_path)
    assert outcome.code == 1
    assert "has no journal" in outcome.err
    assert list(tmp_path.iterdir()) == []
