"""File systems that an item may fill or break: in memory, or a file on a loop device. All need a mount namespace."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

EXT4_BYTES = 64 << 20
WITHIN_S = 30.0


def in_memory(options: str) -> Callable[[Path], None]:
    """Mounts a tmpfs with these options."""

    def mount(place: Path) -> None:
        _run("mount", "-t", "tmpfs", "-o", options, "none", str(place))

    return mount


def ext4(place: Path) -> None:
    """Mounts an ext4 that becomes read-only with its first error, as most systems have theirs."""
    image = image_of(place)
    with image.open("wb") as file:
        file.truncate(EXT4_BYTES)
    _run("mkfs.ext4", "-q", "-F", str(image))
    mount_ext4(place)


def image_of(place: Path) -> Path:
    """The file that an ext4 is in."""
    return place.with_suffix(".ext4")


def mount_ext4(place: Path) -> None:
    """Mount it, repaired where that is needed."""
    _run("e2fsck", "-p", str(image_of(place)), most=1)
    _run("mount", "-o", "loop,errors=remount-ro", str(image_of(place)), str(place))


def break_ext4(place: Path) -> None:
    """Let the kernel find an error: from now on it is read-only."""
    source = subprocess.check_output(["findmnt", "-n", "-o", "SOURCE", str(place)], text=True)
    trigger = Path("/sys/fs/ext4") / Path(source.strip()).name / "trigger_fs_error"
    trigger.write_text("a hostile day\n")


def unmount(place: Path) -> None:
    """Unmount it as soon as the processes that used it have ended."""
    deadline = time.monotonic() + WITHIN_S
    while subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            raise SystemExit(f"{place} is still in use")
        time.sleep(0.1)


@contextmanager
def mounted(place: Path, mount: Callable[[Path], None] | None) -> Iterator[None]:
    """Something is mounted within this block, or nothing."""
    if mount is not None:
        mount(place)
    try:
        yield
    finally:
        if mount is not None:
            _run("umount", "--lazy", str(place))


@contextmanager
def no_room(place: Path) -> Iterator[None]:
    """No byte is left within this block."""
    filler = place / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"x" * size)
                except OSError:
                    size //= 2
        yield
    finally:
        filler.unlink()


@contextmanager
def no_inodes(place: Path) -> Iterator[None]:
    """No file can be made within this block."""
    folder = place / "many"
    folder.mkdir()
    try:
        with suppress(OSError):
            for number in count():
                (folder / str(number)).touch()
        yield
    finally:
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()


def _run(*command: str, most: int = 0) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode > most:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
