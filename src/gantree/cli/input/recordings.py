"""What `gantree replay` and `gantree trace import` read: a journal (directory, file, database), or a snapshot."""

import time
from pathlib import Path

from gantree.cli.input.files import read_text
from gantree.cli.input.moments import seconds_since_epoch
from gantree.cli.options import database_url, shallow
from gantree.formats import read_cluster, read_trace
from gantree.formats.policy.reader import PRESET_NAMES, preset
from gantree.journal.postgres import SCHEMES, PostgresReader
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import FILE, SqliteReader
from gantree.model.errors import BadInput
from gantree.sim.replay.reading import read_recording
from gantree.sim.replay.recording import Recording
from gantree.sim.replay.snapshot import recording_of

SITE, TRACE = "cluster-empty.yaml", "trace.csv"
"""Files of a snapshot of Kubernetes."""
SQLITE_MAGIC = b"SQLite format 3\0"
ALLOWED = (
    f"a state directory (with {FILE}), a copy of a journal, a PostgreSQL URL, or a directory that"
    " `gantree kubernetes snapshot` wrote"
)


def holds_journal(path: Path) -> bool:
    """Whether a path is a directory with a journal, or a copy of one."""
    if path.is_dir():
        return (path / FILE).exists()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def recording_in(source: str, since: str | None, until: str | None) -> Recording:
    """What a source has recorded of a span of time. Raises BadInput and JournalError."""
    now = time.time()
    since_at = seconds_since_epoch("--since", since, now)
    until_at = seconds_since_epoch("--until", until, now)
    if since_at is not None and until_at is not None and since_at >= until_at:
        raise BadInput(f"--since {since} is not before --until {until}")
    if _is_snapshot(source):
        return _snapshot(Path(source), since, until)
    journal = _journal(source)
    try:
        return read_recording(journal, preset(PRESET_NAMES[0]), since_at, until_at)
    finally:
        journal.close()


def _is_snapshot(source: str) -> bool:
    folder = Path(source)
    return folder.is_dir() and not (folder / FILE).exists() and (folder / TRACE).exists()


def _snapshot(folder: Path, since: str | None, until: str | None) -> Recording:
    if since is not None or until is not None:
        raise BadInput(f"{folder}: a snapshot is of one moment; leave out --since and --until")
    site = str(folder / SITE)
    return recording_of(read_cluster(read_text(site), site), read_trace(folder / TRACE))


def _journal(source: str) -> SqlJournal:
    """The journal, for reading only. Raises BadInput for what is none."""
    if source.partition("://")[0] in SCHEMES:
        return PostgresReader(database_url(source) or source)
    path = shallow(Path(source).absolute(), "SOURCE")
    if path.is_dir():
        if not (path / FILE).exists():
            raise BadInput(f"{source}: there is no journal in this directory; allowed: {ALLOWED}")
        return SqliteReader(path)
    if not path.exists():
        raise BadInput(f"{source}: no such file or directory; allowed: {ALLOWED}")
    try:
        with path.open("rb") as file:
            magic = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise BadInput(f"{source}: {(error.strerror or str(error)).lower()}") from None
    if magic != SQLITE_MAGIC:
        raise BadInput(f"{source}: this file is no journal; allowed: {ALLOWED}")
    return SqliteReader(path.parent, path.name)
