"""Checks of the journal: its version, whether it is whole, and whether the clock agrees with its newest event."""

from collections.abc import Iterator

from gantree.cli.doctor.finding import Finding, Subject, fail, ok, warn
from gantree.control.clock import DAY_S, LONGEST_GAP_S
from gantree.journal.postgres import PostgresReader
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import FILE, SqliteReader, quick_check
from gantree.model.errors import JournalError

CHECK_WITHIN_S = 10.0
AHEAD_S = 60.0


def check_journal(subject: Subject) -> Iterator[Finding]:
    """Its version and its integrity, and the clock."""
    if subject.database is None and not (subject.state_dir / FILE).exists():
        yield from _none(subject)
        return
    try:
        journal = _opened(subject)
    except JournalError as error:
        yield fail("journal", str(error), _fix(str(error)))
        return
    try:
        newest = journal.last_observed_at()
        yield from _integrity(subject, journal)
        yield _clock(newest, subject.wall)
    except JournalError as error:
        yield fail("journal", str(error), _fix(str(error)))
    finally:
        journal.close()


def _opened(subject: Subject) -> SqlJournal:
    if subject.database is not None:
        return PostgresReader(subject.database)
    return SqliteReader(subject.state_dir)


def _fix(error: str) -> str:
    if "older gantree" in error:
        return "start gantree up of this version once; back the journal up before"
    if "newer" in error:
        return "install the newer version; an older one changes nothing"
    return "restore it from a backup (gantree journal backup makes one), or use another --state"


def _none(subject: Subject) -> Iterator[Finding]:
    if (subject.state_dir / "runs").exists():
        found = f"{subject.state_dir} has runs, but no journal that knows of them"
        yield fail("journal", found, f"restore {FILE}, or use another --state")
    elif subject.state_dir.is_dir():
        yield ok("journal", "there is none yet; gantree up makes it")


def _integrity(subject: Subject, journal: SqlJournal) -> Iterator[Finding]:
    turns = f"{journal.turns():,} turns"
    if subject.database is not None:
        yield ok("journal", f"{journal.database.name}, {turns}")
        return
    faults = quick_check(subject.state_dir, CHECK_WITHIN_S)
    if faults is None:
        found = f"{turns}; its check takes longer than {CHECK_WITHIN_S:g} s"
        yield warn("journal", found, "gantree journal verify reads all of it")
    elif faults:
        fix = "restore it from a backup; gantree journal verify names every fault"
        yield fail("journal", f"damaged: {faults[0]}", fix)
    else:
        yield ok("journal", f"whole, {turns}")


def _clock(newest: float, wall: float) -> Finding:
    """As `control.clock` judges it at a start."""
    ahead_s = wall - newest
    if newest == 0 or -AHEAD_S <= ahead_s <= LONGEST_GAP_S:
        return ok("clock", "it agrees with the newest event of the journal")
    if ahead_s > LONGEST_GAP_S:
        found = f"it is {ahead_s / DAY_S:.0f} days ahead of the newest event of the journal"
        fix = "set the clock; or, if no daemon has run for so long, gantree up --accept-clock"
        return fail("clock", found, fix)
    found = f"it is {-ahead_s / DAY_S:.1f} days behind the newest event of the journal"
    if ahead_s < -LONGEST_GAP_S:
        return fail("clock", found, "set the clock; if it is right, gantree journal correct-clock")
    fix = "set the clock, if it is wrong; the daemon's time goes on from the newest event"
    return warn("clock", found, fix)
