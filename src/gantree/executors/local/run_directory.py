"""The run directory of one attempt: names of its files, and the order it was made from. Nothing is started here.

    runs/<job>/<attempt>/
      gang.json        master port, boot id, the StartGang order and how often each member was replaced; durable before
                       the first shim starts
      stop.json        this attempt is to stop (there may be no gang.json: then it never starts)
      failed.json      the executor could not start it
      settled          its end is on record elsewhere
      m<node rank>/    one member: what `shim` writes, and launch.json and the orders for it; of one that was replaced
                       m<node rank>.<life>/, too
      log/             rank-<r>.log
      check/           the check before the start: see `checking`
      ranks.json       where each rank is: for `gantree.training`, and for the record
      found.json       the program and its machine as found, for the record
      progress/        rank-0.json: the progress that the job reports
      checkpoint/      request.json, agreed-<step>.json, rank-<r>.json, answer, saved.json

Job ids become folder names, so an id that could lead anywhere else is refused here.
"""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gantree.executors.local.shim.shim import read_json, sync_folder, write_json
from gantree.executors.local.unix_users import UnixUser
from gantree.model.errors import BadInput
from gantree.model.jobs import Check
from gantree.model.orders import MemberLaunch, StartGang
from gantree.model.placements import Domain, GpuChange, MigPart, SharePart
from gantree.model.replicas import Readiness, ReplicaOf

_LOOKED_BACK = 100
"""Attempts before one that are looked at for the last that began."""
_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def is_job_id(name: str) -> bool:
    """Whether a job's folder may have this name."""
    return _JOB_ID.fullmatch(name) is not None


class RunDirectory:
    """Paths of one attempt. Raises BadInput for a job id that is no plain name."""

    def __init__(self, runs: Path, job: str, attempt: int) -> None:
        if not is_job_id(job) or attempt < 0:
            raise BadInput(
                f"{job!r} attempt {attempt}: a job id is letters, digits, '.', '_' and '-', at most 200,"
                " and starts with no dot"
            )
        self.job, self.attempt = job, attempt
        self.path = runs / job / str(attempt)
        self.gang = self.path / "gang.json"
        self.stop = self.path / "stop.json"
        self.failed = self.path / "failed.json"
        self.settled = self.path / "settled"
        self.checkpoint = self.path / "checkpoint"
        self.progress = self.path / "progress"
        self.check = self.path / "check"
        self.ranks = self.path / "ranks.json"
        self.record = self.path / "found.json"

    def member(self, node_rank: int, life: int = 0) -> Path:
        """The folder of one member; life counts its replacements."""
        return self.path / (f"m{node_rank}.{life}" if life else f"m{node_rank}")

    def log(self, rank: int) -> Path:
        """The log file of one process."""
        return self.path / "log" / f"rank-{rank}.log"

    def log_failure(self, reason: str) -> None:
        """Say in the log of rank 0 why the gang could not be started. A full disk prevents nothing else."""
        self.write_to_log(0, reason)

    def write_to_log(self, rank: int, sentence: str) -> None:
        """Write a line into the log of a process, beside its own. A full disk prevents nothing else."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with suppress(OSError):
            self.log(rank).parent.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(self.log(rank), flags, 0o600), "a", encoding="utf-8") as log:
                log.write(f"gantree: {sentence}\n")

    def written(self, order: str) -> Path:
        """The file that says that the line of an order is in the logs."""
        return self.path / f"written-{order.rpartition('/')[2]}"

    def make(self, node_ranks: range, unix: UnixUser | None = None) -> None:
        """Create all folders, private to this user and durable.

        unix: the user of the processes, if it is another one. That user owns the folders that they write into, and may
        traverse to them. All else stays the daemon's, so that no job can replace a file that the daemon reads.
        """
        ours = [self.path, self.path / "log", self.checkpoint, self.progress]
        folders = [*ours, *map(self.member, node_ranks)]
        for folder in (self.path.parent.parent, self.path.parent, *folders):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if unix is not None:
            for folder in (self.path.parent.parent, self.path.parent, self.path):
                folder.chmod(0o711)
            for folder in (self.checkpoint, self.progress):
                os.chown(folder, unix.uid, unix.gid, follow_symlinks=False)
        for folder in (self.path.parent.parent, self.path.parent, self.path):
            sync_folder(str(folder))


def lives_in(record: dict[str, Any]) -> dict[int, int]:
    """How often members were replaced, by number, of the record in gang.json; those that never were are missing."""
    return {int(member): life for member, life in record.get("lives", {}).items()}


def write_first(path: Path, value: Any) -> None:
    """Write a whole file, on disk when this returns, unless it is there already. Raises OSError."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    write_json(str(draft), value)
    try:
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink()
    sync_folder(str(path.parent))


def write_plain(path: Path, value: Any) -> None:
    """Write a whole file or none; on disk whenever the system comes to it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file)
    temporary.rename(path)


def previous_world_size(run: RunDirectory) -> int | None:
    """Processes of the last attempt before this one that began; None if none did. Raises OSError."""
    for attempt in range(run.attempt - 1, max(0, run.attempt - 1 - _LOOKED_BACK), -1):
        record = read_json(str(run.path.parent / str(attempt) / "gang.json"))
        if record is not None:
            return int(record["order"]["world_size"])
    return None


def order_to_json(order: StartGang) -> dict[str, Any]:
    """Plain data of an order."""
    return asdict(order)


def order_from_json(data: dict[str, Any]) -> StartGang:
    """The order that `order_to_json` wrote down."""
    members = tuple(_member_from_json(member) for member in data["members"])
    changes = tuple(_change_from_json(change) for change in data.get("changes", ()))
    domain = data.get("domain")
    check, service = data.get("check"), data.get("service")
    parts = {"members": members, "changes": changes, "domain": domain and Domain(**domain)}
    parts["check"] = check and Check(**check)
    parts["service"] = service and ReplicaOf(**(service | {"ready": Readiness(**service["ready"])}))
    for name in ("secrets", "parallelism"):
        parts[name] = tuple(map(tuple, data.get(name, ())))
    return StartGang(**(data | parts))


def _member_from_json(data: dict[str, Any]) -> MemberLaunch:
    tuples = {name: tuple(data.get(name, ())) for name in ("gpus", "nics", "run", "ranks")}
    pairs = {name: tuple(map(tuple, data.get(name, ()))) for name in ("env", "devices")}
    share = data.get("share")
    parts = {"mig": _instances(data.get("mig", ())), "share": share and SharePart(**share)}
    return MemberLaunch(**(data | tuples | pairs | parts))


def _change_from_json(data: dict[str, Any]) -> GpuChange:
    cuts = {name: _instances(data[name]) for name in ("destroy", "create")}
    return GpuChange(**(data | cuts))


def _instances(data: Sequence[dict[str, Any]]) -> tuple[MigPart, ...]:
    return tuple(MigPart(**part) for part in data)
