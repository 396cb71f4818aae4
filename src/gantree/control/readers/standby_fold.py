"""The ledger that a standby keeps up to date, so that it can lead without reading the journal first.

A `Follower` in the daemon's own process, on a thread and a connection of its own, beside the reader's: to pass a ledger
between processes takes longer than to fold it anew. It serves no queries, so its ledger holds recorded facts alone. A
daemon that becomes the leader takes it over and reads the newest facts; if that fails it reads the journal from the
newest snapshot, as at a start.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gantree.control.garbage import set_all_apart, set_survivors_apart
from gantree.control.readers.follower import Follower
from gantree.control.requests.policy_versions import RecordedPolicies
from gantree.core.scheduler import Scheduler
from gantree.journal.contract import Journal
from gantree.model.errors import GantreeError
from gantree.policy.rules import Policy

FOLLOW_EVERY_S = 0.5
PATIENCE_S = 10.0
"""So long a new leader waits for a read in progress, which ends sooner than one begun anew."""

log = logging.getLogger(__name__)


class StandbyFold:
    """Keeps one ledger after the other, from each `start` to the next `take`. otherwise is as in `Follower`."""

    def __init__(self, open_journal: Callable[[], Journal], otherwise: Policy) -> None:
        self._open_journal, self._otherwise = open_journal, otherwise
        self._following: _Following | None = None

    def start(self) -> None:
        """Start; idempotent."""
        if self._following is None:
            self._following = _Following(self._open_journal, self._otherwise)
            self._following.start()

    @property
    def is_ready(self) -> bool:
        """Whether there is one that has read all that there was."""
        return self._following is not None and self._following.follower is not None

    def hand_over(self) -> Follower | None:
        """The one that is kept, which is let go; None where there is none. Waits for what is being read."""
        following, self._following = self._following, None
        return None if following is None else following.ended()

    def close(self) -> None:
        """Drop the ledger, without waiting."""
        following, self._following = self._following, None
        if following is not None:
            following.stop.set()


class _Following(threading.Thread):
    """The thread of one ledger. follower is there once it has read all that there was."""

    def __init__(self, open_journal: Callable[[], Journal], otherwise: Policy) -> None:
        super().__init__(name="warm", daemon=True)
        self.stop = threading.Event()
        self.follower: Follower | None = None
        self._open_journal, self._otherwise = open_journal, otherwise
        self._is_troubled = False

    def ended(self) -> Follower | None:
        """Stop, and give what is known then."""
        self.stop.set()
        self.join(PATIENCE_S)
        if self.is_alive():
            log.error("what was read ahead is not there after %g s: all is read anew", PATIENCE_S)
            return None
        return self.follower

    def run(self) -> None:
        """Follow until told to stop, or until a bug."""
        journal: Journal | None = None
        try:
            while not self.stop.is_set():
                journal = self._followed(journal)
                set_survivors_apart()
                self.stop.wait(FOLLOW_EVERY_S)
        except Exception:
            self.follower = None
            log.exception("bug in what is read ahead: to lead will take a restart's time")
        finally:
            if journal is not None:
                journal.close()

    def _followed(self, journal: Journal | None) -> Journal | None:
        """Read what is new, once; the journal that it is read from, None where it cannot be opened."""
        try:
            journal = journal or self._open_journal()
            if self.follower is None:
                self.follower = Follower(journal, self._otherwise)
                set_all_apart()
            else:
                self.follower.catch_up()
            self._is_troubled = False
        except GantreeError as error:
            if not self._is_troubled:
                log.warning("nothing can be read ahead, trying again: %s", error)
            self._is_troubled = True
        return journal


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """A scheduler of a journal's facts up to seq, which nobody has read anew."""

    scheduler: Scheduler
    seq: int

    def on_record(self, journal: Journal) -> RecordedPolicies:
        """The versions of the policy, of which those up to here are known."""
        versions = self.scheduler.ledger.policies
        return RecordedPolicies(journal, versions[-1] if versions else None, self.seq)


def read_ahead(follower: Follower | None, journal: Journal) -> ReadAhead | None:
    """All of a journal, on from a follower, which is over then. None where there is none, and, loudly, after a bug."""
    if follower is None:
        return None
    try:
        return ReadAhead(follower.handed_over(journal), follower.seq)
    except Exception:
        log.exception("what was read ahead cannot be gone on from: the journal is read anew")
        return None
