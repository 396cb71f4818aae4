"""The record of a run: what ran, where, and on what, for each attempt.

It is found once the gang has been started, on a thread of its own, so that no start waits for it; and written down as
`found.json` in the run directory. A daemon that adopts an attempt without one finds it then. The order, which was put
down before anything was started, has the rest. Secrets are left out before anything is written: `recording.redaction`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from gantree import __version__
from gantree.executors.local.recording.git import git_revision
from gantree.executors.local.recording.program import program_provenance
from gantree.executors.local.recording.redaction import redacted_command, redacted_env
from gantree.executors.local.recording.user_file_access import file_access_as
from gantree.executors.local.run_directory import RunDirectory
from gantree.executors.local.shim.shim import read_json, write_json
from gantree.model.orders import MemberLaunch, StartGang

FORMAT = 1
VersionsOfNode = Callable[[str], Mapping[str, str]]
"""Versions found on a node by name ("driver", "cuda"); empty where it has no GPU or is not this machine."""

About = Callable[[], Mapping[str, str]]
_Pending = tuple[RunDirectory, StartGang, dict[str, Any]]
CLOSE_WITHIN_S = 5.0
"""So long a stop waits for the record that is being written: a file system may hang. The next daemon finds it anew."""

log = logging.getLogger(__name__)


def no_versions(node: str) -> Mapping[str, str]:
    """What is known of a node without GPUs."""
    return {}


def nothing() -> Mapping[str, str]:
    """The empty description of a daemon."""
    return {}


class Recorder:
    """Finds and writes the records of attempts, one after the other, on a thread of its own.

    about: the present description of the daemon, such as the version of its policy.
    """

    def __init__(self, versions: VersionsOfNode, about: About) -> None:
        self._versions = versions
        self._about = about
        self._pending: SimpleQueue[_Pending | None] = SimpleQueue()
        self._closing = Event()
        self._thread: Thread | None = None

    def begin(self, run: RunDirectory, order: StartGang, map_of_ranks: dict[str, Any]) -> None:
        """Have the record of an attempt written, unless there is one. Returns at once."""
        if run.record.exists():
            return
        self._pending.put((run, order, map_of_ranks))
        if self._thread is None:
            self._thread = Thread(target=self._work, name="gantree-record", daemon=True)
            self._thread.start()

    def now(self, run: RunDirectory, order: StartGang) -> dict[str, Any]:
        """What would be found if the attempt were started now; its variables are those of then. Raises OSError."""
        return self._found(run, order, {})

    def close(self) -> None:
        """Finish the one that is being written, if it can be soon; the next daemon finds what was not."""
        self._closing.set()
        self._pending.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_WITHIN_S)

    def _work(self) -> None:
        while (pending := self._pending.get()) is not None and not self._closing.is_set():
            self._write(*pending)

    def _write(self, run: RunDirectory, order: StartGang, map_of_ranks: dict[str, Any]) -> None:
        try:
            record = self._found(run, order, map_of_ranks)
            write_json(str(run.record), record)
        except Exception:  # a record is worth no gang
            log.exception("no record of job %s attempt %d", run.job, run.attempt)

    def _found(
        self, run: RunDirectory, order: StartGang, map_of_ranks: dict[str, Any]
    ) -> dict[str, Any]:
        began_s = time.perf_counter()
        first_of_role = {member.role: member for member in reversed(order.members)}
        nodes = dict.fromkeys(member.node for member in order.members)
        roles = {role: _role(run, first_of_role[role]) for role in sorted(first_of_role)}
        return {
            "format": FORMAT,
            "found_at": time.time(),
            "gantree": __version__,
            **self._about(),
            "roles": roles,
            "nodes": {node: dict(self._versions(node)) for node in nodes},
            **map_of_ranks,
            "took_s": round(time.perf_counter() - began_s, 4),
        }


def _role(run: RunDirectory, member: MemberLaunch) -> dict[str, Any]:
    """One role by its first member: what was run, and what was found of it."""
    launch = read_json(str(run.member(member.node_rank) / "launch.json")) or {}
    env, workdir = launch.get("env", dict(member.env)), launch.get("workdir", member.workdir or "/")
    with file_access_as((launch.get("as") or {}).get("unix")):
        found = {**program_provenance(member.run, env, workdir), "git": git_revision(Path(workdir))}
    return {
        "command": redacted_command(member.run),
        "env": redacted_env(env),
        "workdir": workdir,
        "image": member.image,
        "processes": member.processes,
        **found,
    }


def rank_map_in(run: RunDirectory) -> dict[str, Any]:
    """Where each rank is, as recorded at the start; empty if that cannot be read."""
    nobody: dict[str, Any] = {"tiers": [], "members": []}
    try:
        return read_json(str(run.ranks)) or nobody
    except OSError:
        return nobody


def record_in(run: RunDirectory) -> dict[str, Any] | None:
    """The record of an attempt; None if it was never started. `found` is false as long as nothing was found."""
    gang = read_json(str(run.gang))
    if gang is None:
        return None
    order = gang["order"]
    ended = read_json(str(run.record))
    return {
        "job": run.job,
        "attempt": run.attempt,
        "world_size": order["world_size"],
        "domain": order.get("domain"),
        "step_s": order.get("step_s"),
        "master_port": gang["master_port"],
        "found": ended is not None,
        "check": read_json(str(run.check / "report.json")),
        **(ended or {**rank_map_in(run), "roles": {}, "nodes": {}}),
    }
