"""A disk with no room left, as a small file system of its own: what is said, what stays, and what comes after."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gantree.journal.sqlite import SqliteJournal
from gantree.journal.verify import verify
from gantree.model.errors import JournalError
from gantree.testing.journal_contract import ended, led, stop, tick


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A megabyte."""
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)],
        capture_output=True, check=False,
    ).returncode == 0  # fmt: skip
    if not mounted:
        pytest.skip("a file system can be mounted by root alone")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
    return filler


def until_full(journal: SqliteJournal, epoch: int) -> int:
    """The last event that was taken, each with a turn of its own."""
    taken = 0
    with pytest.raises(JournalError, match=r"journal .*journal\.sqlite3: database or disk is full"):
        while True:
            journal.append_inbox([tick(taken + 1)], epoch)
            taken += 1
            journal.commit_turn(taken, [ended(taken)] * 9, [stop(taken, epoch)], epoch)
    return taken


def test_on_a_full_disk_nothing_that_was_taken_is_lost_and_it_goes_on_when_there_is_room(
    disk: Path,
) -> None:
    with closing(SqliteJournal(disk)) as journal:
        epoch = led(journal)
        filler = fill(disk)
        taken = until_full(journal, epoch)
        with pytest.raises(JournalError, match="is full"):
            journal.append_inbox([tick(taken + each) for each in range(1, 999)], epoch)
        assert len(journal.read_inbox(0, 99_999)) == taken
        assert journal.turns() in (taken, taken - 1)
        filler.unlink()
        journal.append_inbox([tick(taken + 1)], epoch)
        journal.commit_turn(taken + 1, [ended(1)], [], epoch)
        assert verify(journal).faults == []
    with closing(SqliteJournal(disk)) as journal:
        assert len(journal.seen([tick(each).id for each in range(1, taken + 2)])) == taken + 1
