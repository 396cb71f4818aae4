"""Checks of the state directory: whether it can be used, its disk, its file system, who may read what is in it."""

import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gantree.api.client.target import TOKEN_FILE_VARIABLE
from gantree.cli.doctor.finding import GIB, MIB, Finding, Subject, fail, ok, warn
from gantree.journal.state_directory import ROOM_BYTES

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "gpfs", "beegfs", "ceph", "glusterfs"}
)
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
LITTLE = 0.05
PRIVATE = (
    "journal.sqlite3",
    "journal.sqlite3-wal",
    "journal.sqlite3-shm",
    "journal.lock",
    "token",
    "epoch.json",
)
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_directory(subject: Subject) -> Iterator[Finding]:
    """Whether it is there, ours, and writable."""
    path, check = subject.state_dir, "state directory"
    try:
        found = path.stat()
    except FileNotFoundError:
        yield _missing(path)
        return
    except OSError as error:
        yield fail(check, f"{path}: {_reason(error)}", "choose another one with --state DIR")
        return
    if not stat.S_ISDIR(found.st_mode):
        yield fail(check, f"{path} is no directory", "choose another one with --state DIR")
    elif found.st_uid != os.geteuid():
        owner = _user(found.st_uid)
        yield fail(check, f"{path} belongs to {owner}", f"run as {owner}, or choose --state DIR")
    else:
        yield _writable(path)


def _missing(path: Path) -> Finding:
    parent = next(each for each in path.parents if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        fix = "make it, with mode 0700, or choose another one with --state DIR"
        return fail("state directory", f"{path} does not exist, nor may you make it", fix)
    return warn("state directory", f"{path} does not exist", "gantree up makes it")


def _writable(path: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=path) as probe:
            os.posix_fallocate(probe.fileno(), 0, ROOM_BYTES)
    except OSError as error:
        fix = "make room there, or mount it writable; until then the daemon records nothing"
        return fail("state directory", f"{path} cannot be written: {_reason(error)}", fix)
    return ok("state directory", f"{path} is writable")


def check_disk(subject: Subject) -> Iterator[Finding]:
    """Free space and free inodes."""
    if not subject.state_dir.is_dir():
        return
    disk = os.statvfs(subject.state_dir)
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    fix = "delete what is not needed, or limit logs: gantree up --keep-runs, --most-runs, --log-cap"
    found = f"{_size(free)} of {_size(size)} are free"
    if free < 16 * MIB:
        yield fail("disk", found, fix)
    elif free < min(LITTLE * size, GIB):
        yield warn("disk", found, fix)
    else:
        yield ok("disk", found)
    yield from _inodes(disk.f_favail, disk.f_files)


def _inodes(free: int, all_of_them: int) -> Iterator[Finding]:
    if all_of_them == 0:  # btrfs, for one, has no fixed number
        return
    found = f"{free:,} of {all_of_them:,} are free"
    fix = "delete directories of old runs, or limit them: gantree up --keep-runs TIME"
    if free < 100:
        yield fail("inodes", found, fix)
    elif free < LITTLE * all_of_them:
        yield warn("inodes", found, fix)
    else:
        yield ok("inodes", found)


def check_file_system(subject: Subject) -> Iterator[Finding]:
    """Its kind: the journal needs locks and flushes of a local one."""
    if not subject.state_dir.is_dir():
        return
    kind = file_system_of(subject.state_dir)
    if kind in NETWORK:
        fix = "use a local disk (--state DIR): locks and flushes over a network lose journals"
        yield warn("file system", f"{subject.state_dir} is on {kind}, a network file system", fix)
    elif kind in IN_MEMORY:
        fix = "use a disk (--state DIR), if jobs must survive a restart of the machine"
        yield warn("file system", f"{subject.state_dir} is in memory ({kind})", fix)
    else:
        yield ok("file system", kind)


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The kind of file system that a directory is on, as the kernel names it."""
    best, kind = "", "unknown"
    target = os.fspath(path.resolve())
    for line in mounts.read_text("utf-8", "replace").splitlines():
        first, _, rest = line.partition(" - ")
        place = first.split()[4].replace("\\040", " ")
        if f"{target}/".startswith(f"{place.rstrip('/')}/") and len(place) >= len(best):
            best, kind = place, rest.split()[0]
    return kind


def check_permissions(subject: Subject) -> Iterator[Finding]:
    """Whether others may read what is private."""
    directory = subject.state_dir
    opened = [path for name in PRIVATE if _is_open(path := directory / name)]
    if directory.is_dir() and directory.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        opened.insert(0, directory)
    named = subject.environment.get(TOKEN_FILE_VARIABLE)
    if named:
        try:
            Path(named).read_bytes()
        except OSError as error:
            fix = f"correct {TOKEN_FILE_VARIABLE}"
            yield fail("permissions", f"token file {named}: {_reason(error)}", fix)
        opened += [Path(named)] if _is_open(Path(named)) else []
    if opened:
        names = " ".join(map(str, opened))
        yield fail("permissions", f"others may use {names}", f"chmod go-rwx {names}")
    elif directory.is_dir():
        yield ok("permissions", "private files are closed to others")


def _is_open(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & OTHERS)
    except OSError:
        return False


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _size(amount: int) -> str:
    return f"{amount / GIB:,.1f} GiB" if amount >= GIB else f"{amount / MIB:,.0f} MiB"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
