"""Drops a rank's process to the job's Unix user before its command starts, and reads the job's secrets as that user.

Standard library only, nothing of gantree: `shim` loads it from the file beside it, and only if a job has a user or
secrets. Secrets are opened with the user's rights, so a job reads no file that its user could not read. They go into
the environment of the process and nowhere else.
"""

import ctypes
import errno
import os
import signal
import stat
from typing import Any

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LARGEST_SECRET = 64 * 1024


def drop_privileges(
    launch_as: dict[str, Any], log: int, env: dict[str, str], shim: int
) -> dict[str, str]:
    """Change to the user, if any; returns the environment with the secrets added to it. Its own values win.

    launch_as is `as` of `launch.json`, log the open log file, shim the pid of the parent.
    Raises OSError, whose strerror says what failed.
    """
    if launch_as["unix"] is not None:
        _drop(launch_as["unix"], log, shim)
    return {name: _secret(name, path) for name, path in launch_as["secrets"]} | env


def _drop(unix: dict[str, Any], log: int, shim: int) -> None:
    """Change user and groups for good. That clears PR_SET_PDEATHSIG, so it is set again."""
    uid, gid = int(unix["uid"]), int(unix["gid"])
    if uid == 0:
        raise PermissionError(errno.EPERM, "no job runs as root")
    if stat.S_ISREG(os.fstat(log).st_mode):  # that of an exec session is /dev/null
        os.fchown(log, uid, gid)
    os.initgroups(unix["name"], gid)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise PermissionError(errno.EPERM, f"it could not become {unix['name']}")
    none = ctypes.c_ulong(0)
    death = ctypes.c_ulong(signal.SIGKILL)
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death, none, none, none) != 0:
        raise PermissionError(errno.EPERM, "it could not be tied to its shim")
    if os.getppid() != shim:
        os._exit(126)


def _secret(name: str, path: str) -> str:
    """The text of a file, without the line end that editors leave."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise PermissionError(errno.EINVAL, "it is no regular file")
        text = os.read(file, LARGEST_SECRET + 1)
        os.close(file)
    except OSError as error:
        raise PermissionError(errno.EACCES, f"secret {name}, {path}: {error.strerror}") from None
    if len(text) > LARGEST_SECRET or b"\0" in text:
        raise PermissionError(
            errno.EINVAL, f"secret {name}, {path}: larger than 64 KiB, or no text"
        )
    return os.fsdecode(text.removesuffix(b"\n"))
