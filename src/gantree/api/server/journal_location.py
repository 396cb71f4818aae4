"""Where the journal is, how readers open it, and how its writer is elected.

With SQLite that is the state directory of one daemon; with PostgreSQL a database and one state directory that several
daemons share.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gantree.api.http import unix_socket
from gantree.api.server.executor_setup import election_by_lease
from gantree.api.server.settings import Settings
from gantree.control.engine.leadership import Leadership
from gantree.executors.local.epochs import EpochFile
from gantree.journal.contract import Journal
from gantree.journal.postgres import PostgresElection, PostgresJournal, PostgresReader
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import FILE, SqliteJournal, SqliteReader
from gantree.model.errors import Conflict, JournalError


@dataclass(frozen=True, slots=True)
class JournalLocation:
    """The journal and its election. shared: other daemons may have it open too."""

    journal: SqlJournal
    open_reader: Callable[[], Journal]
    leadership: Leadership
    shared: bool


def journal_location_of(settings: Settings, opened: ExitStack) -> JournalLocation:
    """Raises JournalError for a journal, or a state directory, that cannot be used."""
    state_dir, url = settings.state_dir, settings.database
    if url is None:
        _refuse_orphaned_runs(state_dir)
        alone = SqliteJournal(state_dir)
        opened.callback(alone.close)
        leadership = _alone(settings, alone, opened)
        return JournalLocation(alone, partial(SqliteReader, state_dir), leadership, shared=False)
    opened.enter_context(unix_socket.present(state_dir))
    election = PostgresElection(url, settings.lease_s)
    opened.callback(election.close)
    leadership = Leadership(election, settings.name, settings.advertise, lease_s=settings.lease_s)
    journal = PostgresJournal(url, leadership.check, settings.lease_s)
    opened.callback(journal.close)
    return JournalLocation(journal, partial(PostgresReader, url), leadership, shared=True)


def _alone(settings: Settings, journal: Journal, opened: ExitStack) -> Leadership:
    """Return the leadership of a daemon with an exclusive journal: on Kubernetes by a Lease, if configured."""
    told = settings.kubernetes
    if told is None or not told.lease:
        return Leadership(journal, settings.name, lease_s=None)
    election, lease_s = election_by_lease(told, journal)
    opened.callback(election.close)
    return Leadership(election, settings.name, settings.advertise, lease_s=lease_s)


def _refuse_orphaned_runs(state_dir: Path) -> None:
    """What an unknown journal started must not be taken over under ids that a new one would give again."""
    journal = state_dir / FILE
    is_lost = not journal.exists() or journal.stat().st_size == 0
    if is_lost and (state_dir / "runs").exists():
        raise JournalError(
            f"{state_dir} has runs, but no journal that knows of them; restore {FILE}, or use another directory"
        )


def refuse_runs_elsewhere(state_dir: Path, journal: SqlJournal) -> None:
    """Who led last must have had this directory: what runs below another would be taken for lost, and started again."""
    last = journal.last_epoch()
    if last == 0 and (state_dir / "runs").exists():
        raise JournalError(
            f"{state_dir} has runs that journal {journal.database.name} knows nothing of; use another directory"
        )
    if EpochFile(state_dir).newest() < last:
        raise Conflict(
            f"the last daemon that led on {journal.database.name} kept its runs elsewhere, not in {state_dir}:"
            " all daemons of a database share one --state, on one machine"
        )
