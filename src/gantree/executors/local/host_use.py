"""CPU time and memory of an attempt's processes: counters of the kernel, read when somebody asks, and kept nowhere.

Of a member that runs: CPU time of its cgroup (`cpu.stat`), or of its processes in /proc with the children that they
waited for; memory is the sum of what each process of it had at most. Of one that has ended: what its shim noted.
Processes on other machines, behind a node's launch prefix, are not seen.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gantree.executors.local import processes
from gantree.executors.local.processes import ShimId
from gantree.executors.local.run_directory import RunDirectory, lives_in
from gantree.executors.local.shim.shim import boot_id, read_json
from gantree.model.host_use import HostUse

KIB_IN_GIB = float(1 << 20)
MOST_PROCESSES = 10_000
"""Of one member; more are not looked at."""


def host_use_in(run: RunDirectory) -> HostUse | None:
    """What an attempt uses, or has used; None where a member is not known. Raises OSError for a damaged directory."""
    record = read_json(str(run.gang))
    if record is None:
        return None
    lives = lives_in(record)
    of_members = []
    for launch in record["order"]["members"]:
        number = launch["node_rank"]
        of_member = _member(run.member(number, lives.get(number, 0)))
        if of_member is None:
            return None
        of_members.append(of_member)
    return HostUse(
        ran_s=max((each.ran_s for each in of_members), default=0.0),
        cpu_s=sum(each.cpu_s for each in of_members),
        memory_GiB=sum(each.memory_GiB for each in of_members),
    )


def _member(folder: Path) -> HostUse | None:
    started, shim = (read_json(str(folder / name)) for name in ("started.json", "shim.json"))
    if started is None or shim is None:
        return None
    ended = read_json(str(folder / "ended.json"))
    if ended is not None:
        return _noted(ended, started["started_at"])
    if not processes.is_alive(ShimId(**shim), boot_id()):
        return None
    cpu_s, memory_KiB = _counted(shim)
    ran_s = max(0.0, time.time() - started["started_at"])
    return HostUse(ran_s, cpu_s, memory_KiB / KIB_IN_GIB)


def _noted(ended: dict[str, Any], started_at: float) -> HostUse | None:
    """What the shim noted at the end; None of one of an earlier version, which did not."""
    if "cpu_s" not in ended:
        return None
    ran_s = max(0.0, ended["ended_at"] - started_at)
    return HostUse(ran_s, ended["cpu_s"], ended["memory_KiB"] / KIB_IN_GIB)


def _counted(shim: dict[str, Any]) -> tuple[float, float]:
    """(seconds of CPU, KiB) of a member that runs."""
    pids = list(_pids(shim))
    memory_KiB = sum(_most_memory_KiB(pid) for pid in pids)
    if shim["cgroup"] is not None:
        with suppress(OSError, ValueError, KeyError):
            text = (Path(shim["cgroup"]) / "cpu.stat").read_text(encoding="ascii")
            stat = dict(line.split() for line in text.splitlines())
            return int(stat["usage_usec"]) / 1e6, memory_KiB
    ended_s = _cpu_s(shim["pid"], own=False)
    return ended_s + sum(_cpu_s(pid) for pid in pids), memory_KiB


def _pids(shim: dict[str, Any]) -> Iterator[int]:
    """The processes of a member: those of its cgroup, else what descends from its shim."""
    if shim["cgroup"] is not None:
        with suppress(OSError, ValueError):
            text = (Path(shim["cgroup"]) / "cgroup.procs").read_text(encoding="ascii")
            yield from [int(line) for line in text.split()[:MOST_PROCESSES]]
            return
    waiting, seen = list(_children(shim["pid"])), 0
    while waiting and seen < MOST_PROCESSES:
        pid = waiting.pop()
        seen += 1
        yield pid
        waiting += _children(pid)


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield from map(int, (task / "children").read_text(encoding="ascii").split())


def _cpu_s(pid: int, *, own: bool = True) -> float:
    """Seconds of a process and of the children that it waited for; not own: of these alone. 0 where it is gone."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_bytes()
        fields = text[text.rindex(b")") + 2 :].split()
        ticks = sum(int(field) for field in (fields[11:15] if own else fields[13:15]))
        return ticks / os.sysconf("SC_CLK_TCK")
    return 0.0


def _most_memory_KiB(pid: int) -> int:
    """The most that a process had in memory; 0 where it is gone."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0
