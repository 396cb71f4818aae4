"""A ledger that a daemon keeps up to date while it stands by, so that it leads without reading the journal first.

It is a `Follower` in the daemon's own process, on a thread and a connection of its own, beside the one that the reader
has: nothing can be handed from one process to another in less time than it takes to fold anew. It is never asked
anything, so nothing but recorded facts has ever touched its ledger. Whoever begins to lead takes it, reads what is new
in the name of its epoch, and goes on from there. Where that fails the journal is read from its newest snapshot, as at
a start.
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
"""So long whoever is to lead waits for what is being read: it is nearer its end than what begins now."""

log = logging.getLogger(__name__)


class StandbyFold:
    """Keeps one ledger after the other, from each `start` to the next `take`. otherwise is as in `Follower`."""

    def __init__(self, open_journal: Callable[[], Journal], otherwise: Policy) -> None:
        self._open_journal, self._otherwise = open_journal, otherwise
        self._following: _Following | None = None

    def start(self) -> None:
        """Begin to keep one; to begin twice is the same as once."""
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
        """Keep none any more; nobody waits."""
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
