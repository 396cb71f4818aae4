"""To import this builds the application once, with its pages, and lives a short life in a journal.

Type adapters, statements and what else is made at the first use are then there: a daemon that is forked later has half
as much to compute until it has taken its first turn.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import MagicMock

from gantree.api.access.access import Access
from gantree.api.server.app import build_app
from gantree.control.snapshots import Snapshots
from gantree.journal.sqlite import SqliteJournal
from gantree.web.pages import routers
from support.history_lives import HistoryLives
from support.journal_tables import share_table_statements
from support.type_adapters import share_type_adapters

STEPS = 40


def _live() -> None:
    with TemporaryDirectory() as directory:
        journal = SqliteJournal(Path(directory))
        lives = HistoryLives(journal, "shares", 1)
        for _ in range(STEPS):
            lives.step()
        Snapshots(journal, lives.epoch).fold(lives.policy)
        journal.close()


share_type_adapters()
share_table_statements()
build_app(MagicMock(), Access(), routers())
_live()
