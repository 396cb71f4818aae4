"""Accesses files with the permissions of a job's Unix user, on one thread of a daemon that runs as root.

The kernel keeps the user and groups for file access by thread, so a record holds nothing that the user could not read.
`shim.drop_privileges` changes a whole process for good.
"""

import ctypes
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gantree.model.errors import Unsupported

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""The call itself: that of the C library is for all threads at once."""


@contextmanager
def file_access_as(unix: Mapping[str, Any] | None) -> Iterator[None]:
    """Access files as a user, as in `launch.json`, on this thread; None: as before.

    Raises Unsupported on a machine where that cannot be done, and OSError.
    """
    if unix is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid, before = int(unix["uid"]), int(unix["gid"]), os.getgroups()
    _set_groups(libc, os.getgrouplist(unix["name"], gid))
    try:
        libc.setfsgid(gid)
        libc.setfsuid(uid)
        if (libc.setfsgid(-1), libc.setfsuid(-1)) != (
            gid,
            uid,
        ):  # it says what was before, and no error
            raise PermissionError(f"this thread could not access files as {unix['name']}")
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
        _set_groups(libc, before)


def _set_groups(libc: ctypes.CDLL, groups: list[int]) -> None:
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise Unsupported(f"on {platform.machine()} files cannot be accessed as another user")
    packed = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(ctypes.c_long(number), ctypes.c_long(len(groups)), packed) != 0:
        raise OSError(ctypes.get_errno(), "the groups of a thread could not be changed")
