"""The executor: submits jobs of a workflow, asks about those that are active, cancels them.

The id of a job is chosen, and noted, before it is submitted under that id as its idempotency key. So a Snakemake that
was killed finds its jobs again when it is started anew, and submits none of them twice.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from gantree_client import ENDED, ApiError, Client, Rejected, Row, Unreachable, exported, job_name
from snakemake_executor_plugin_gantree.job_file import job_of
from snakemake_executor_plugin_gantree.note import Note
from snakemake_executor_plugin_gantree.settings import ExecutorSettings

LOGS = Path(".snakemake/gantree_logs")
CLOCKS_DIFFER_S = 3600.0
"""So far may the daemon's clock be behind."""


class Executor(RemoteExecutor):
    """Runs each job of a workflow as a job of gantree."""

    def __post_init__(self) -> None:
        """Find the daemon. Raises WorkflowError."""
        self._since = time.time() - CLOCKS_DIFFER_S
        self._settings = self.executor_settings or ExecutorSettings()
        try:
            self._client = Client(self._settings.server)
            self._default_env = exported(self._settings.export)
        except ApiError as error:
            raise WorkflowError(str(error)) from error

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job, or take up again the one that an earlier Snakemake submitted. Raises WorkflowError."""
        note = Note(job)
        name, is_active = self._noted(note)
        if is_active:
            self.logger.info(f"Job {job.jobid} runs already, as {name}.")
        else:
            name = name or job_name(self.get_jobname(job))
            note.write(name)
            self._submit(job, name)
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=name, aux={"note": note}))

    def _noted(self, note: Note) -> tuple[str, bool]:
        """The id that an earlier Snakemake chose, if it is of use still, and whether that job is active."""
        name = note.read()
        if not name:
            return "", False
        try:
            row = self._client.job(name)
        except Rejected as error:
            if error.title != "NotFound":
                raise WorkflowError(str(error)) from error
            return name, False  # Snakemake was killed before it was submitted
        except Unreachable as error:
            raise WorkflowError(str(error)) from error
        is_active = row["phase"] not in ENDED
        return name if is_active else "", is_active

    def _submit(self, job: JobExecutorInterface, name: str) -> None:
        wanted = job_of(job, name, self.format_job_exec(job), self.envvars(), self._settings)
        try:
            (accepted,) = self._client.submit(
                [wanted], base_dir=Path.cwd(), default_env=self._default_env, key=name
            )
        except ApiError as error:
            raise WorkflowError(
                f"rule {job.name}: gantree did not accept the job: {error}"
            ) from error
        assert accepted == name

    async def check_active_jobs(  # type: ignore[override]  # upstream declares a coroutine, and iterates
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report what has ended, give what has not."""
        try:
            rows = await self._rows([str(each.external_jobid) for each in active_jobs])
        except ApiError as error:
            self.logger.info(f"{error}; asking again")
            for each in active_jobs:
                yield each
            return
        for each in active_jobs:
            row = rows.get(str(each.external_jobid))
            if row is None:
                self.report_job_error(each, msg=f"gantree knows no job {each.external_jobid}. ")
            elif row["phase"] not in ENDED:
                yield each
            else:
                self._report_end(each, row)

    async def _rows(self, jobs: list[str]) -> dict[str, Row]:
        """Each job that gantree knows. Raises ApiError."""
        async with self.status_rate_limiter:
            return await asyncio.to_thread(self._client.rows, jobs, self._since)

    def _report_end(self, info: SubmittedJobInfo, row: Row) -> None:
        (info.aux or {})["note"].remove()
        if row["phase"] == "succeeded":
            self.report_job_success(info)
            return
        code = row["exit_code"]
        reason = f"{row['reason'] or row['phase']}" + (f" (exit code {code})" if code else "")
        msg = f"Job {row['job']} of gantree {row['phase']}: {reason}. "
        self.report_job_error(info, msg=msg, aux_logs=self._log(row["job"]))

    def _log(self, job: str) -> list[str]:
        """A file with what a job printed last; none if it cannot be read."""
        try:
            text = "".join(self._client.logs(job, rank=0, tail=1000))
            LOGS.mkdir(parents=True, exist_ok=True)
            path = LOGS / f"{job}.log"
            path.write_text(text, encoding="utf-8")
        except (ApiError, OSError) as error:
            self.logger.error(f"the log of {job} cannot be read: {error}")
            return []
        return [str(path)]

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel them; one that cannot be is named and left."""
        for each in active_jobs:
            try:
                self._client.cancel(str(each.external_jobid))
            except ApiError as error:
                self.logger.error(f"{each.external_jobid} was not cancelled: {error}")

    def get_envvar_declarations(self) -> str:
        """None in the command line, which everybody sees: variables are in the job's environment."""
        return ""

    def additional_general_args(self) -> list[Any]:
        """Nothing beyond what Snakemake passes to its jobs."""
        return []
