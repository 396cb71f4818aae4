"""The highest epoch of a leader that was obeyed on this machine: a file shared by all its daemons and shims.

A daemon raises the epoch under an exclusive lock. A shim holds a shared lock from when it reads the epoch until it has
written shim.json. So once the epoch is raised, no shim of an older leader can start, and the new leader sees every shim
that did: a leader that is suspended between its decision and the start of a process starts nothing. A daemon holds the
lock only while it writes one line, so a suspended daemon blocks nobody.
"""

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from gantree.executors.local.shim.shim import EPOCH, EPOCH_LOCK, read_json, write_json
from gantree.model.errors import JournalError
from gantree.model.orders import Order

FREE_WITHIN_S = 3.0
"""How long shims that are coming up may keep the lock."""
_LOOK_EVERY_S = 0.01

log = logging.getLogger(__name__)


class EpochFile:
    """The number of one state directory, which must exist."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._file, self._lock = state_dir / EPOCH, state_dir / EPOCH_LOCK

    def newest(self) -> int:
        """The newest epoch that was obeyed; 0 before the first. Raises OSError."""
        return int((read_json(str(self._file)) or {"epoch": 0})["epoch"])

    def raise_to(self, epoch: int) -> None:
        """Obey no older epoch from now on, durably. A newer one stays. Raises OSError."""
        lock = os.open(self._lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(lock)
            if self.newest() < epoch:
                write_json(str(self._file), {"epoch": epoch})
        finally:
            os.close(lock)

    def _take(self, lock: int) -> None:
        deadline = time.monotonic() + FREE_WITHIN_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    reason = "a shim that is coming up keeps it"
                    raise OSError(errno.EBUSY, reason, str(self._lock)) from None
                time.sleep(_LOOK_EVERY_S)


class LeaderGuard:
    """Refuses orders of leaders that were replaced. leads returns whether the leader of this daemon still leads."""

    def __init__(self, state_dir: Path, leads: Callable[[], bool]) -> None:
        self._file, self._leads = EpochFile(state_dir), leads
        self.epoch = self._file.newest()

    @property
    def is_deposed(self) -> bool:
        """Whether nothing may be done in the name of this leader any more."""
        return not self._leads() or self._file.newest() > self.epoch

    def admits(self, order: Order) -> bool:
        """Whether an order may be carried out; its epoch is on record before that. Raises OSError."""
        if not self._leads():
            log.warning("order %s: its leader, of epoch %d, is out of time", order.id, order.epoch)
            return False
        newest = self._file.newest()
        if order.epoch < newest:
            log.warning(
                "order %s has epoch %d, older than %d: refused", order.id, order.epoch, newest
            )
            return False
        if order.epoch > newest:
            self._file.raise_to(order.epoch)
        self.epoch = order.epoch
        return True

    def begin(self, epoch: int) -> None:
        """Obey no older epoch from now on. Raises JournalError where a newer one was obeyed."""
        directory = self._file.state_dir
        try:
            self._file.raise_to(epoch)
            self.epoch = self._file.newest()
        except OSError as error:
            raise JournalError(f"{directory}: {error.filename}: {error.strerror}") from error
        if epoch and self.epoch > epoch:
            raise JournalError(
                f"{directory} has obeyed epoch {self.epoch}, and this is epoch {epoch}: it belongs to another"
                " journal, or the journal was restored from a copy; in the latter case remove epoch.json there"
            )
