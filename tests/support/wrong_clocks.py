"""Wrong clocks: of a process, and journals as a daemon leaves them whose machine had one."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from gantree.control.clock import SteadyClock, boot_time
from gantree.journal.sqlite import SqliteJournal
from gantree.model.events import TimePassed

DAY_S = 86400


def set_ahead(seconds: float) -> None:
    """Set the wall clock of this process ahead by so many seconds, or back: what `time.time` says, and no file."""
    right = time.time

    def wrong() -> float:
        return right() + seconds

    time.time = wrong
    SteadyClock.__init__.__defaults__ = (wrong, boot_time)


def move_events(state_dir: Path, days: int) -> None:
    """Have all events of the journal happen so many days later: as if the clock stood behind by that."""
    with closing(sqlite3.connect(state_dir / "journal.sqlite3")) as db, db:
        db.execute("UPDATE inbox SET observed_at = observed_at + ?", (days * DAY_S,))


def jump_ahead(state_dir: Path, days: int) -> None:
    """As if a daemon had run for a moment while the clock stood so far ahead."""
    journal = SqliteJournal(state_dir)
    epoch = journal.lead("a wrong clock", 60.0)
    assert epoch is not None
    moment = time.time() + days * DAY_S
    journal.append_inbox([TimePassed(id=f"far-ahead-{moment}", observed_at=moment)], epoch)
    journal.resign(epoch)
    journal.close()
