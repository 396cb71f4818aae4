"""Checks of the machine: limits of processes, the NVIDIA driver, the clock, versions of Python and of libraries."""

import ctypes
import os
import platform
import re
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata

from gantree.cli.doctor.finding import Finding, Subject, fail, ok, warn

FEW_FILES, MANY_FILES = 256, 4096
FEW_PROCESSES, MANY_PROCESSES = 256, 4096
FULL = 0.8
UNSYNCHRONISED = 0x40
"""STA_UNSYNC of adjtimex(2)."""
STATUS_OFFSET = 40
"""Of `status` in struct timex on 64-bit Linux."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?.*?>=([0-9.]+)")


def check_limits(subject: Subject) -> Iterator[Finding]:
    """Open files and processes: of the daemon, or of this shell, which would hand them to one."""
    is_daemon = subject.daemon is not None and subject.daemon.is_local
    pid = subject.daemon.pid if subject.daemon is not None and is_daemon else 0
    whose = "of the daemon" if is_daemon else "of this shell"
    try:
        files = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]  # the daemon raises its soft limit
        processes = resource.prlimit(pid, resource.RLIMIT_NPROC)[0]
    except OSError as error:
        yield warn(
            "limits", f"{whose}: {error.strerror}", "run gantree doctor as the daemon's user"
        )
        return
    fix = "raise it (ulimit -Hn, LimitNOFILE= of systemd); connections and gangs need descriptors"
    yield _limit("open files", whose, files, (FEW_FILES, MANY_FILES), fix)
    fix = "raise it (ulimit -u, LimitNPROC=, TasksMax= of systemd); each rank is a process"
    yield _limit("processes", whose, processes, (FEW_PROCESSES, MANY_PROCESSES), fix)
    if is_daemon:
        yield from _used_files(pid, files)


def _limit(check: str, whose: str, limit: int, bounds: tuple[int, int], fix: str) -> Finding:
    if limit == resource.RLIM_INFINITY or limit >= bounds[1]:
        return ok(check, f"limit {whose}: {'none' if limit == resource.RLIM_INFINITY else limit}")
    level = fail if limit < bounds[0] else warn
    return level(check, f"limit {whose}: {limit}", fix)


def _used_files(pid: int, limit: int) -> Iterator[Finding]:
    with suppress(OSError):
        used = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only their number counts
        if used > FULL * limit:
            fix = "raise the limit, or close connections: gantree up --max-connections N"
            yield fail("open files", f"the daemon has {used} of {limit} open", fix)


def check_driver(subject: Subject) -> Iterator[Finding]:
    """Whether the NVIDIA driver answers."""
    from gantree.model.errors import Unreachable  # noqa: PLC0415 - with what follows
    from gantree.telemetry.nvml import driver as nvml  # noqa: PLC0415 - what else is checked does not need it

    devices = sorted(path.name for path in subject.devices.glob("nvidia[0-9]*"))
    try:
        found = nvml.versions()
        yield ok(
            "driver", f"NVIDIA {found['driver']}, CUDA {found['cuda']}, {len(nvml.uuids())} GPUs"
        )
    except Unreachable as error:
        if devices:
            fix = "run nvidia-smi; after an update of the driver, restart the machine or load its module again"
            yield fail("driver", f"{', '.join(devices)} exist, but {error}", fix)
        else:
            fix = "none is needed for --cluster, --virtual and Kubernetes; for this machine's GPUs install one"
            yield warn("driver", str(error), fix)


def check_synchronised(subject: Subject) -> Iterator[Finding]:
    """Whether a time server keeps the clock, where the kernel says so."""
    status = clock_status()
    if status is None:
        yield ok("time server", "the kernel does not say whether one keeps the clock")
    elif status & UNSYNCHRONISED:
        fix = "run chrony or systemd-timesyncd; a clock that jumps is kept in the journal for ever"
        yield warn("time server", "none keeps this machine's clock", fix)
    else:
        yield ok("time server", "the clock is kept by one")


def clock_status() -> int | None:
    """The status bits of adjtimex(2); None where they cannot be read."""
    if platform.machine() not in ("x86_64", "aarch64"):
        return None
    timex = ctypes.create_string_buffer(512)  # modes 0: only read
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return int.from_bytes(timex.raw[STATUS_OFFSET : STATUS_OFFSET + 4], "little")


def check_versions(subject: Subject) -> Iterator[Finding]:
    """Python, SQLite, and libraries that are missing or older than required."""
    try:
        required = metadata.requires("gantree") or []
    except metadata.PackageNotFoundError:
        action = "install it, so that versions can be checked: pip install gantree"
        yield warn("libraries", "gantree runs from its source and is not installed", action)
        return
    needed = [text for text in required if "extra" not in text]
    wrong = [found for text in needed if (found := _complaint(text))]
    if wrong:
        yield fail("libraries", "; ".join(wrong), "install them: pip install --upgrade gantree")
    else:
        yield ok(
            "libraries", f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
        )


def _complaint(requirement: str) -> str:
    match = _REQUIREMENT.match(requirement)
    if match is None:
        return ""
    name, least = match[1], match[2]
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is missing"
    return f"{name} {found} is older than {least}" if _parts(found) < _parts(least) else ""


def _parts(version: str) -> tuple[int, ...]:
    numbers = re.match(r"[0-9.]*[0-9]", version)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
