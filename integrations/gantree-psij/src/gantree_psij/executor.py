"""The executor: submits, attaches to, lists and cancels jobs, and tells PSI/J of their states."""

from pathlib import Path

from psij import (
    InvalidJobException,
    Job,
    JobExecutor,
    JobExecutorConfig,
    JobSpec,
    JobState,
    JobStatus,
    SubmitException,
)
from psij.launcher import Launcher

from gantree_client import ENDED, ApiError, Client, Rejected, exported, inherited, job_name
from gantree_psij.job_file import custom, job_of, runs_as_gang
from gantree_psij.watcher import Watcher


class GantreeJobExecutor(JobExecutor):
    """Runs jobs on the daemon at url: a URL or a state directory; None: what the environment names."""

    def __init__(self, url: str | None = None, config: JobExecutorConfig | None = None) -> None:
        """Nothing is connected before the first job. Raises ValueError for a URL that is none."""
        super().__init__(url=url, config=config or JobExecutorConfig())
        try:
            self._client = Client(url)
        except ApiError as error:
            raise ValueError(str(error)) from error
        self._watcher = Watcher(self._client, self._set_job_status)

    def submit(self, job: Job) -> None:
        """Submit a job. Raises InvalidJobException and SubmitException."""
        spec = self._check_job(job)
        with job._status_cv:
            if job.status.state == JobState.CANCELED:
                raise SubmitException("Job canceled")
        name = job_name(spec.name or "psij")
        wanted = job_of(spec, name, self._command(job, spec), self.config.work_directory / name)
        try:
            (native_id,) = self._client.submit(
                [wanted], base_dir=Path.cwd(), default_env=self._environment(spec), key=name
            )
        except Rejected as error:
            raise InvalidJobException(str(error)) from error
        except ApiError as error:
            raise SubmitException(str(error)) from error
        job._native_id = native_id
        self._set_job_status(job, JobStatus(JobState.QUEUED, metadata={"native_id": native_id}))
        self._watcher.watch(native_id, job)

    def _command(self, job: Job, spec: JobSpec) -> list[str]:
        """What each process runs: the launcher of PSI/J once, or the executable on each rank."""
        if not spec.executable:
            raise InvalidJobException("executable: a job needs one")
        if runs_as_gang(spec):
            return [spec.executable, *(spec.arguments or [])]
        launcher = self._get_launcher(spec.launcher or Launcher.DEFAULT_LAUNCHER_NAME)
        return launcher.get_launch_command(job)

    @staticmethod
    def _environment(spec: JobSpec) -> dict[str, str]:
        if not spec.inherit_environment:
            return {}
        words = custom(spec).get("export")
        try:
            return inherited() if words is None else exported(str(words))
        except ApiError as error:
            raise InvalidJobException(f"gantree.{error}") from error

    def cancel(self, job: Job) -> None:
        """Ask for its end; nothing happens if it has ended. Raises SubmitException."""
        if job.native_id is None:
            raise SubmitException("the job was not submitted")
        try:
            self._client.cancel(str(job.native_id))
        except ApiError as error:
            raise SubmitException(str(error)) from error

    def list(self) -> list[str]:
        """The jobs that have not ended, whoever submitted them."""
        return [row["job"] for row in self._client.jobs() if row["phase"] not in ENDED]

    def attach(self, job: Job, native_id: str) -> None:
        """Let job be one that was submitted before. Raises InvalidJobException and SubmitException."""
        if job.status.state != JobState.NEW:
            raise InvalidJobException("Job must be in the NEW state")
        try:
            self._client.job(native_id)
        except Rejected as error:
            raise InvalidJobException(str(error)) from error
        except ApiError as error:
            raise SubmitException(str(error)) from error
        job.executor = self
        job._native_id = native_id
        self._watcher.watch(native_id, job)
