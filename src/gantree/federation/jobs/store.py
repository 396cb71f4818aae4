"""What a front has decided, durable in SQLite in its state directory. A transaction is on disk when `save` returns."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gantree.federation.jobs.federated_job import FederatedJob, Stage, job_from_json
from gantree.model.errors import JournalError

FILE = "federation.sqlite3"
ENDED_KEPT = 10_000
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (seq INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, ended INTEGER NOT NULL,
                                 document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS clusters (cluster TEXT PRIMARY KEY, document TEXT NOT NULL);
"""


class Store:
    """Jobs, and what is kept of each cluster. path may be ":memory:". Raises JournalError where it cannot be used."""

    def __init__(self, path: Path | str) -> None:
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_TABLES)
        except sqlite3.Error as error:
            raise JournalError(f"{path}: {error}") from error

    def jobs(self) -> list[FederatedJob]:
        """All jobs, oldest first."""
        rows = self._database.execute("SELECT document FROM jobs ORDER BY seq")
        return [job_from_json(json.loads(document)) for (document,) in rows]

    def clusters(self) -> dict[str, dict[str, Any]]:
        """What is kept of each cluster."""
        rows = self._database.execute("SELECT cluster, document FROM clusters")
        return {cluster: json.loads(document) for cluster, document in rows}

    def save(
        self,
        jobs: Iterable[FederatedJob] = (),
        clusters: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Write all of it, or nothing. Raises JournalError."""
        rows = [(job.job, job.stage is Stage.ENDED, json.dumps(job.to_json())) for job in jobs]
        kept = [(name, json.dumps(dict(each))) for name, each in (clusters or {}).items()]
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany(
                    "INSERT INTO jobs (job, ended, document) VALUES (?, ?, ?)"
                    " ON CONFLICT (job) DO UPDATE SET ended = excluded.ended, document = excluded.document",
                    rows,
                )
                self._database.executemany("INSERT OR REPLACE INTO clusters VALUES (?, ?)", kept)
        except sqlite3.Error as error:
            raise JournalError(f"the store of the federation: {error}") from error

    def prune(self) -> None:
        """Forget ended jobs, but the newest ENDED_KEPT of them."""
        self._database.execute(
            "DELETE FROM jobs WHERE ended AND seq NOT IN"
            " (SELECT seq FROM jobs WHERE ended ORDER BY seq DESC LIMIT ?)",
            (ENDED_KEPT,),
        )

    def close(self) -> None:
        """Let it go."""
        self._database.close()
