# ruff: noqa: PTH102, PTH118, PTH123 - as in `shim`: pathlib costs 10 ms of every start
"""The cgroup of a member's processes, where one may be created, and what they used of CPUs and memory.

Standard library only, nothing of gantree: `shim` loads it from the file beside it.
"""

import os
import resource


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


def used(cgroup: str | None, processes: int) -> dict[str, float]:
    """What a member has used that has ended: seconds of CPU, of its cgroup where it has one, and KiB of memory.

    Memory is that of the largest process, as if each of its processes had been as large.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = ended.ru_utime + ended.ru_stime
    if cgroup is not None:
        try:
            with open(f"{cgroup}/cpu.stat", encoding="ascii") as file:
                cpu_s = (
                    int(next(line.split()[1] for line in file if line.startswith("usage_usec")))
                    / 1e6
                )
        except (OSError, StopIteration, ValueError):
            pass  # what its processes that were waited for have used is known anyway
    return {"cpu_s": round(cpu_s, 3), "memory_KiB": ended.ru_maxrss * processes}
