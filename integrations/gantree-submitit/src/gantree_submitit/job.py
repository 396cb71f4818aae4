"""A submitted function: its state, its cancellation, and its place among what a daemon is asked about at once."""

import time

from submitit.core import core, logger, utils

from gantree_client import ApiError, Client, Row

STATES = {
    "pending": "PENDING",
    "starting": "PENDING",
    "running": "RUNNING",
    "saving": "RUNNING",
    "stopping": "COMPLETING",
    "succeeded": "COMPLETED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
    "timed-out": "TIMEOUT",
}
"""Phases of gantree in the words of submitit, which are those of Slurm."""
CLOCKS_DIFFER_S = 3600.0
"""So far may the daemon's clock be behind."""
POLL_S = 5


class GantreeInfoWatcher(core.InfoWatcher):
    """Asks one daemon about all jobs of this process."""

    def __init__(self, delay_s: int = POLL_S) -> None:
        """Nothing is asked yet."""
        super().__init__(delay_s)
        self._client: Client | None = None
        self._since = time.time() - CLOCKS_DIFFER_S

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The state as Slurm would call it; UNKNOWN where the daemon does not answer or knows no such job."""
        return self.get_info(job_id, mode).get("State") or "UNKNOWN"

    def update(self) -> None:
        """Ask about every job that was not over before."""
        self._num_calls += 1
        asked = sorted(self._registered - self._finished)
        try:
            self._client = self._client or Client()
            rows = self._client.rows(asked, self._since)
            self._info_dict.update({each: _info(row) for each, row in rows.items()})
        except ApiError as error:
            logger.get_logger().warning(f"Call #{self.num_calls}: {error}; states may be old.")
        self._last_status_check = time.time()
        self._finished |= {each for each in asked if self.is_done(each, mode="cache")}


def _info(row: Row) -> dict[str, str]:
    code = row["exit_code"]
    return {
        "JobID": row["job"],
        "State": STATES.get(row["phase"], "UNKNOWN"),
        "ExitCode": "" if code is None else str(code),
        "Reason": row["reason"] or "",
        "Restarts": str(max(0, row["attempt"] - 1)),
    }


class GantreeJob(core.Job[core.R]):
    """A job of gantree; its id is gantree's too, so `gantree logs ID` and the like find it."""

    watcher = GantreeInfoWatcher()

    def cancel(self, check: bool = True) -> None:
        """Cancel it; nothing happens if it has ended. check: raise ApiError if that fails."""
        try:
            Client().cancel(self.job_id)
        except ApiError as error:
            if check:
                raise
            logger.get_logger().warning(f"{self.job_id} was not cancelled: {error}")

    def exception(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """The error of the task that failed; of those that were stopped for that only if there is no other."""
        if not self._sub_jobs:
            return super().exception()
        errors = [error for each in self._sub_jobs if (error := each.exception()) is not None]
        failed = [error for error in errors if isinstance(error, utils.FailedJobError)]
        return next(iter(failed or errors), None)

    def _interrupt(self, timeout: bool = False) -> None:
        raise NotImplementedError(
            "gantree sends its signals itself: before the time limit, and to checkpoint"
        )
