"""To look at files with the rights of a job's Unix user, on one thread of a daemon that is root.

The kernel keeps by thread whose rights count where a path is walked and a file is opened. Names, sizes and digests that
are found so are no more than the user could find himself. Changing into a user for good is in `become`.
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
def looking_as(unix: Mapping[str, Any] | None) -> Iterator[None]:
    """Have this thread's looks be those of a user, as `launch.json` names him; None: as they are.

    Raises Unsupported on a machine where that cannot be done, and OSError.
    """
    if unix is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid, before = int(unix["uid"]), int(unix["gid"]), os.getgroups()
    _take_groups(libc, os.getgrouplist(unix["name"], gid))
    try:
        libc.setfsgid(gid)
        libc.setfsuid(uid)
        if (libc.setfsgid(-1), libc.setfsuid(-1)) != (
            gid,
            uid,
        ):  # it says what was before, and no error
            raise PermissionError(f"this thread could not look as {unix['name']}")
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
        _take_groups(libc, before)


def _take_groups(libc: ctypes.CDLL, groups: list[int]) -> None:
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise Unsupported(f"on {platform.machine()} nobody's files can be looked at as he would")
    packed = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(ctypes.c_long(number), ctypes.c_long(len(groups)), packed) != 0:
        raise OSError(ctypes.get_errno(), "the groups of a thread could not be changed")
