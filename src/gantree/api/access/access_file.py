"""The access file of a running daemon: read at the start, and again whenever it has changed.

A new one that is wrong changes nothing: the old one rules on, and the log says so once for each try.
"""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from gantree.formats.access.reader import MAX_ACCESS_FILE_BYTES, AccessRules, read_access
from gantree.model.errors import BadInput

LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


class AccessFile:
    """Who may do what, by a file. The file is looked at on a thread of its own, so no request waits for a disk."""

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        """Raises BadInput (BadFields) for a file that cannot be read or is wrong."""
        self._path = path
        self._clock = clock
        self._seen = _stamp(path)
        self._rules = read_access(_text(path), str(path))
        self._looked_at = clock()
        self._looking = threading.Lock()

    @property
    def rules(self) -> AccessRules:
        """What the file said when it was looked at last, at most a moment ago."""
        if self._clock() - self._looked_at >= LOOK_EVERY_S and self._looking.acquire(
            blocking=False
        ):
            self._looked_at = self._clock()
            threading.Thread(target=self._look_and_let_go, name="access-file", daemon=True).start()
        return self._rules

    def _look_and_let_go(self) -> None:
        try:
            self.reload()
        finally:
            self._looking.release()

    def reload(self) -> None:
        """Read the file again if it has changed."""
        try:
            stamp = _stamp(self._path)
            if stamp == self._seen:
                return
            self._seen = stamp
            self._rules = read_access(_text(self._path), str(self._path))
        except (BadInput, OSError) as error:
            log.error("the access file is not taken, the one before rules on: %s", error)
            return
        log.warning("the access file %s was read again", self._path)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What differs when a file was written anew; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _text(path: Path) -> str:
    """The text of a file that only its owner may change. Raises BadInput."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(MAX_ACCESS_FILE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if mode & 0o022:
        raise BadInput(f"{path}: others may write it; chmod go-w {path}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start})") from None
