"""Tells PSI/J what becomes of jobs: one thread that asks the daemon about all that are not over."""

import logging
import threading
import time
from collections.abc import Callable

from psij import Job, JobState, JobStatus

from gantree_client import ENDED, ApiError, Client, Row

CLOCKS_DIFFER_S = 3600.0
"""So far may the daemon's clock be behind."""
POLL_S = 0.5
FINAL = {
    "succeeded": JobState.COMPLETED,
    "failed": JobState.FAILED,
    "timed-out": JobState.FAILED,
    "cancelled": JobState.CANCELED,
}
ACTIVE = {"running", "saving", "stopping"}
_log = logging.getLogger(__name__)


class Watcher:
    """Several jobs of PSI/J may be the same job of gantree: one that was submitted and one attached to it."""

    def __init__(self, client: Client, tell: Callable[[Job, JobStatus], None]) -> None:
        """tell sets the state of a job."""
        self._client = client
        self._tell = tell
        self._since = time.time() - CLOCKS_DIFFER_S
        self._jobs: dict[str, list[Job]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, native_id: str, job: Job) -> None:
        """Tell what becomes of a job, until it is over."""
        with self._lock:
            self._jobs.setdefault(native_id, []).append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gantree jobs", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        wait = threading.Event()
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                ids = list(self._jobs)
            try:
                self._look(ids)
            except ApiError as error:
                _log.warning("%s; asking again", error)
            wait.wait(POLL_S)

    def _look(self, ids: list[str]) -> None:
        rows = self._client.rows(ids, self._since)
        for native_id in ids:
            row = rows.get(native_id)
            if row is None:
                self._end(
                    native_id,
                    JobStatus(JobState.FAILED, message=f"gantree knows no job {native_id}"),
                )
            else:
                self._tell_of(native_id, row)

    def _tell_of(self, native_id: str, row: Row) -> None:
        phase = row["phase"]
        metadata: dict[str, object] = {"native_id": native_id, "phase": phase}
        if phase in ACTIVE or (phase in ENDED and row["started_at"] is not None):
            for job in self._all(native_id):
                if job.status.state in (JobState.NEW, JobState.QUEUED):
                    self._tell(
                        job, JobStatus(JobState.ACTIVE, row["started_at"], metadata=metadata)
                    )
        if phase in ENDED:
            message = None if phase == "succeeded" else row["reason"]
            self._end(
                native_id,
                JobStatus(FINAL[phase], row["ended_at"], message, row["exit_code"], metadata),
            )

    def _all(self, native_id: str) -> list[Job]:
        with self._lock:
            return list(self._jobs.get(native_id, ()))

    def _end(self, native_id: str, status: JobStatus) -> None:
        with self._lock:
            jobs = self._jobs.pop(native_id, [])
        for job in jobs:
            self._tell(job, status)
