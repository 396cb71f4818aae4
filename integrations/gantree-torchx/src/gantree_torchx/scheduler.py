"""The scheduler: submits an application as one gang, describes it, reads its logs, cancels it."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from torchx.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
    filter_regex,
)
from torchx.specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    ReplicaStatus,
    Role,
    RoleStatus,
    runopts,
)
from torchx.workspace.dir_workspace import DirWorkspaceMixin

from gantree_client import Client, Rejected, Row, exported, job_name
from gantree_torchx.job_file import GantreeRequest, job_of, rank_of

STATES = {
    "pending": AppState.PENDING,
    "starting": AppState.PENDING,
    "running": AppState.RUNNING,
    "saving": AppState.RUNNING,
    "stopping": AppState.RUNNING,
    "succeeded": AppState.SUCCEEDED,
    "failed": AppState.FAILED,
    "cancelled": AppState.CANCELLED,
    "timed-out": AppState.FAILED,
}
OPTIONS = {
    "queue": "queue of the job",
    "priority": "class or number",
    "time_limit": "stop the job after this time, such as 1h30m",
    "required": "tier: all replicas in one domain of it, or the job waits",
    "preferred": "tier that is tried first",
    "export": "variables of yours that the job gets: ALL, NONE, NAME, NAME=VALUE, with commas between them",
    "job_dir": "new directory into which the workspace is copied, and in which the job runs",
}


class GantreeScheduler(DirWorkspaceMixin, Scheduler[Any]):
    """Runs an application as one gang: all replicas start, or none."""

    def __init__(self, session_name: str, client: Client | None = None) -> None:
        """client: None: the daemon that the environment names."""
        super().__init__("gantree", session_name)
        self._client = client or Client()

    def _run_opts(self) -> runopts:
        opts = runopts()
        for name, text in OPTIONS.items():
            opts.add(name, type_=str, default=None, help=text)
        opts.add(
            "use_image",
            type_=bool,
            default=False,
            help="run in the role's image, where the cluster runs images",
        )
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[GantreeRequest]:
        """What would be submitted. Raises ValueError."""
        name = job_name(app.name or "torchx")
        job = job_of(app, cfg, name)
        request = GantreeRequest(job, str(Path.cwd()), exported(cfg.get("export")))
        return AppDryRunInfo(request, lambda each: json.dumps(each.job, indent=2))

    def schedule(self, dryrun_info: AppDryRunInfo[GantreeRequest]) -> str:
        """Submit it; the same dry run again is the same job. Raises gantree_client.ApiError."""
        request = dryrun_info.request
        (job,) = self._client.submit(
            [request.job],
            base_dir=request.base_dir,
            default_env=request.default_env,
            key=request.key,
        )
        return job

    def _validate(self, app: AppDef, scheduler: str) -> None:
        """Resources may be left out: then a replica gets no GPU."""

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """The state of an application and of its replicas; None: there is none."""
        try:
            row = self._client.job(app_id)
        except Rejected as error:
            if error.title == "NotFound":
                return None
            raise
        state = STATES[row["phase"]]
        return DescribeAppResponse(
            app_id=app_id,
            state=state,
            num_restarts=max(0, row["attempt"] - 1),
            msg=self._message(row),
            ui_url=self._page(app_id),
            roles=[_role(part) for part in row["spec"]["roles"]],
            roles_statuses=[_status(part["name"], row, state) for part in row["spec"]["roles"]],
        )

    def _message(self, row: Row) -> str:
        if row["phase"] == "pending":
            return self._client.why(row["job"])
        code = row["exit_code"]
        reason: str = row["reason"] or row["phase"]
        return reason if not code else f"{reason} (exit code {code})"

    def _page(self, app_id: str) -> str | None:
        urls = self._client.address.urls
        return f"{urls[0]}/jobs/{app_id}" if urls else None

    def list(self) -> list[ListAppResponse]:
        """Every job that the caller may see."""
        return [ListAppResponse(row["job"], STATES[row["phase"]]) for row in self._client.jobs()]

    def _cancel_existing(self, app_id: str) -> None:
        self._client.cancel(app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """What a replica printed, of all attempts. Raises ValueError for a replica that does not exist.

        gantree keeps one log for both streams, and no times of lines: since and until are ignored.
        """
        if streams not in (None, Stream.COMBINED):
            raise ValueError(
                f"streams: found {streams}; allowed: combined, as gantree keeps one log for both"
            )
        rank = rank_of(self._client.job(app_id), role_name, k)
        lines = _lines(self._client.logs(app_id, rank=rank, follow=should_tail))
        return filter_regex(regex, lines) if regex else lines


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Whole lines, but for what is left at the end."""
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        yield from (f"{line}\n" for line in lines)
    if rest:
        yield rest


def _role(part: Row) -> Role:
    command = part["run"] or [""]
    return Role(
        name=part["name"],
        image=part["image"] or "",
        entrypoint=command[0],
        args=list(command[1:]),
        num_replicas=part["members"],
    )


def _status(role: str, row: Row, state: AppState) -> RoleStatus:
    placed = (row["placement"] or {}).get("members", [])
    return RoleStatus(
        role,
        [
            ReplicaStatus(id=member["rank"], state=state, role=role, hostname=member["node"])
            for member in placed
            if member["role"] == role
        ],
    )


def create_scheduler(session_name: str, **kwargs: Any) -> GantreeScheduler:
    """What TorchX calls."""
    return GantreeScheduler(session_name)
