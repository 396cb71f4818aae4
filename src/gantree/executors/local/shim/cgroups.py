# ruff: noqa: PTH102, PTH118, PTH123 - as in `shim`: pathlib costs 10 ms of every start
"""The cgroup of a member's processes, where one may be created.

Standard library only, nothing of gantree: `shim` loads it from the file beside it.
"""

import os


def make_cgroup(name: str) -> str | None:
    """A cgroup (version 2) below our own, or None where that is not allowed."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = next(line[3:].strip() for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
        root, mount = next((fields[3], fields[4]) for fields in mounts)
        below_mount = os.path.relpath(own, root)
        if below_mount.startswith(".."):
            return None
        path = os.path.join(mount, below_mount, name)
        os.mkdir(path)
    except (OSError, StopIteration):
        return None
    return path
