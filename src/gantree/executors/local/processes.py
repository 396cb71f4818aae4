"""Shim processes: whether one lives, how to wake it, and the clean-up after a dead one.

A process is identified by pid, start time and boot id, because pids are reused. Signals go through a pidfd that was
opened before the identity was checked, so they cannot hit another process.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gantree.executors.local.shim import shim

_MARK = b"GANTREE_RUN="


@dataclass(frozen=True, slots=True)
class ShimId:
    """The identity of a shim until the machine reboots, and the cgroup of its processes if it has one."""

    pid: int
    start_ticks: int
    boot_id: str
    cgroup: str | None


def is_alive(shim_id: ShimId, boot_id: str) -> bool:
    """Return whether that very process is alive; a zombie is not."""
    stat = shim.process_stat(shim_id.pid) if shim_id.boot_id == boot_id else None
    return stat is not None and stat[0] not in "ZX" and stat[3] == shim_id.start_ticks


def wake(shim_id: ShimId, boot_id: str) -> None:
    """Make a shim read its directory now; does nothing if it has exited."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(shim_id.pid)
        try:
            if is_alive(shim_id, boot_id):
                signal.pidfd_send_signal(descriptor, shim.WAKE)
        finally:
            os.close(descriptor)


def spawn_shim(folder: Path, state_dir: Path, epoch: int) -> int:
    """Start the shim of a member's folder in a session of its own; returns its pid. Raises OSError.

    It starts nothing if a newer leader than that of epoch was obeyed in state_dir.
    """
    log = str(folder / "shim.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", shim.__file__, str(folder), str(state_dir), str(epoch)],
        {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD],
    )


def is_locked(path: Path) -> bool:
    """True while a shim holds its lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def reap(pid: int) -> bool:
    """True once our child of that pid has ended (or is no child of ours)."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def sweep(cgroup_of_folder: Mapping[str, str | None]) -> frozenset[str]:
    """Kill what belongs to members whose shim is dead; returns the folders of which something was found.

    The keys are the values of GANTREE_RUN to look for. Costs one pass over /proc however many there are; call
    it again until it finds nothing, since what is killed takes a moment to vanish.
    """
    found = {
        folder
        for folder, cgroup in cgroup_of_folder.items()
        if cgroup and _clear_cgroup(Path(cgroup))
    }
    marks = {_MARK + os.fsencode(folder): folder for folder in cgroup_of_folder}
    for name in os.listdir("/proc"):  # noqa: PTH208  # names are all that is needed, of every process there is
        folder = _kill_if_marked(int(name), marks) if name.isdigit() else None
        if folder is not None:
            found.add(folder)
    return frozenset(found)


def _clear_cgroup(cgroup: Path) -> bool:
    """Kill all processes of a cgroup and remove it once it is empty; return whether there were any."""
    try:
        had_somebody = "populated 1" in (cgroup / "cgroup.events").read_text(encoding="ascii")
        if had_somebody:
            (cgroup / "cgroup.kill").write_text("1", encoding="ascii")
        else:
            cgroup.rmdir()
    except OSError:
        return False  # gone, or a kernel before 5.14, which has no cgroup.kill: the mark must do
    return had_somebody


def _kill_if_marked(pid: int, marks: dict[bytes, str]) -> str | None:
    if not _mark_of(pid, marks):
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        mark = _mark_of(pid, marks)
        if mark is not None:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    return mark


def _mark_of(pid: int, marks: dict[bytes, str]) -> str | None:
    """The folder that a process carries in its environment; a zombie carries none."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((marks[variable] for variable in variables if variable in marks), None)
