"""`gantree journal`: verify, export, back up, compact and correct a journal.

All of them open the journal themselves and ask no daemon. Checking, writing out and copying go beside a running one.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.options import (
    DatabaseOption,
    JsonOption,
    StateOption,
    database_url,
    new_app,
    state_dir,
)
from gantree.cli.output.errors import FAILURE
from gantree.cli.output.printing import print_json
from gantree.journal.clock_correction import clock_jump, correct_clock
from gantree.journal.contract import Compacted, Journal
from gantree.journal.export import export
from gantree.journal.postgres import PostgresJournal, PostgresReader
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal, SqliteReader, back_up, vacuum
from gantree.journal.verify import Report, verify
from gantree.model.errors import Conflict, Unsupported
from gantree.text.words import plural

DAY_S = 86400.0
LEASE_S = 600.0
"""How long a lease lasts that is taken for compacting; it is given back at the end."""

app = new_app(no_args_is_help=True)


@app.callback()
def journal() -> None:
    """Verify, export, back up, compact or correct a journal."""


def _reader(state: Path | None, database: str | None) -> SqlJournal:
    url = database_url(database)
    return SqliteReader(state_dir(state)) if url is None else PostgresReader(url)


@app.command("verify")
def verify_(
    state: StateOption = None, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Check the whole journal and print its faults.

    Exit status 1 if there is a fault. A daemon may run meanwhile; rows that it adds are not checked.
    """
    opened = _reader(state, database)
    try:
        report = verify(opened)
    finally:
        opened.close()
    if as_json:
        faults = [
            {"table": each.table, "row": each.row, "what": each.what} for each in report.faults
        ]
        print_json({"journal": opened.database.name, "rows": report.rows, "faults": faults})
    else:
        typer.echo(_told(opened.database.name, report))
    if report.faults:
        raise typer.Exit(FAILURE)


def _told(name: str, report: Report) -> str:
    faults = [str(each) for each in report.faults]
    read = ", ".join(f"{count} {table.replace('_', ' ')}" for table, count in report.rows.items())
    result = f"{plural(len(faults), 'fault')}" if faults else "no faults"
    return "\n".join([*faults, f"{name}: {result}; read {read}"])


@app.command("export")
def export_(state: StateOption = None, database: DatabaseOption = None) -> None:
    """Write the whole journal to stdout as JSON lines.

    A daemon may run meanwhile.
    """
    opened = _reader(state, database)
    try:
        for line in export(opened):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    finally:
        opened.close()


@app.command()
def backup(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write; it must not exist.")
    ],
    state: StateOption = None,
    database: DatabaseOption = None,
) -> None:
    """Copy the journal of a state directory to a file.

    A daemon may run meanwhile: the copy is consistent. To restore it, stop the daemon and
    replace journal.sqlite3 with the copy, and delete the -wal and -shm files next to it.
    """
    if database_url(database) is not None:
        raise Unsupported(
            "use the tools of PostgreSQL, also while daemons run:"
            " pg_dump --format=custom --file=FILE DATABASE"
        )
    back_up(state_dir(state), target)
    typer.echo(f"{target}: {target.stat().st_size} bytes")


@app.command()
def compact(
    state: StateOption = None, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Delete facts, orders and event contents that the newest snapshot covers.

    The daemon must be stopped. Event ids stay, so that no event is accepted twice.
    """
    opened = _writer(state, database)
    try:
        done, up_to = _compacted(opened)
        if isinstance(opened, SqliteJournal):
            vacuum(opened)
    finally:
        opened.close()
    if as_json:
        counts = {"facts": done.facts, "orders": done.orders, "events": done.events}
        print_json(counts | {"compacted_to": up_to})
    else:
        typer.echo(
            f"{plural(done.facts, 'fact')}, {plural(done.orders, 'order')} and the content of"
            f" {plural(done.events, 'event')} were deleted; facts up to {up_to} are in a snapshot"
        )


@app.command("correct-clock")
def correct_clock_(
    state: StateOption = None, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Move back what was written while the clock stood far ahead.

    The daemon must be stopped. Make a backup first.
    """
    opened = _writer(state, database)
    try:
        jump = clock_jump(opened, time.time())
        with _leading(opened, "gantree journal correct-clock"):
            done = correct_clock(opened, jump)
    finally:
        opened.close()
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(
            f"{plural(done.events, 'event')}, {plural(done.facts, 'fact')} and {plural(done.orders, 'order')}"
            f" moved back by {done.seconds / DAY_S:.1f} days"
        )


def _writer(state: Path | None, database: str | None) -> SqlJournal:
    """A journal to write. Raises JournalError where there is none; opening it for writing would make one."""
    url = database_url(database)
    if url is not None:
        return PostgresJournal(url)
    SqliteReader(state_dir(state)).close()
    return SqliteJournal(state_dir(state))


@contextmanager
def _leading(opened: Journal, name: str) -> Iterator[int]:
    """The epoch in which a command may write. Raises Conflict if a daemon leads."""
    epoch = opened.lead(name, LEASE_S)
    if epoch is None:
        raise Conflict(f"a daemon uses this journal ({opened.leader()[1]}); stop it first")
    try:
        yield epoch
    finally:
        opened.resign(epoch)


def _compacted(opened: Journal) -> tuple[Compacted, int]:
    """All that is covered goes. Raises Conflict if nothing is, or if a daemon leads."""
    snapshot = opened.latest_snapshot()
    if snapshot is None:
        raise Conflict(
            "this journal has no snapshot yet, so nothing can be deleted; a daemon writes snapshots"
        )
    with _leading(opened, "gantree journal compact") as epoch:
        return opened.compact(snapshot.seq, epoch), opened.compacted_to()
