"""A ledger that follows a journal written by another process: the newest snapshot, then new facts as they come.

It equals the controller's ledger, as after a restart: facts are folded, and after a change of policy all are folded
anew. It restarts from the newest snapshot if facts were compacted before it read them, or if its newest fact is no
longer in the journal (a database restored to an earlier time). It decides nothing and writes nothing.
"""

import logging
from itertools import takewhile

from gantree.control.clock import boot_time
from gantree.control.garbage import take_back, without_collecting
from gantree.control.requests.policy_versions import RecordedPolicies
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.control.snapshots import newest_restored
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.formats.policy.reader import read_policy
from gantree.journal.contract import Journal, RecordedFact
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.errors import JournalError
from gantree.model.facts import PolicyAdopted
from gantree.policy.rules import Policy

log = logging.getLogger(__name__)


class FollowerOutdated(
    Exception
):  # no GantreeError: whoever serves questions catches up and asks again
    """The journal has a newer snapshot than the facts that were read here."""


class Follower:
    """Follows a journal, which is only read. otherwise is the policy that rules where none is on record."""

    def __init__(self, journal: Journal, otherwise: Policy) -> None:
        """Reads all there is. Raises JournalError for a journal that cannot be read."""
        self.journal = journal
        self._otherwise = otherwise
        self._ledger, self._seq, self._now, self._version = Ledger(otherwise), 0, 0.0, 0
        self._last: RecordedFact | None = None
        self._looked_at = boot_time()
        self.restart()

    @property
    def ledger(self) -> Ledger:
        """The ledger, equal to the fold of the facts up to `seq`."""
        return self._ledger

    @property
    def seq(self) -> int:
        """The newest fact that was read."""
        return self._seq

    @property
    def now(self) -> float:
        """The moment of the newest fact, in seconds."""
        return self._now

    @property
    def age_s(self) -> float:
        """Seconds since all that the journal had was read."""
        return boot_time() - self._looked_at

    def restart(self) -> None:
        """Forget all, and read all there is. Raises JournalError."""
        self._begin()
        self.catch_up()

    def catch_up(self) -> None:
        """Read what is new. Raises JournalError."""
        looked_at = boot_time()
        with without_collecting():
            while not self._read_on():
                self._begin()
        self._looked_at = looked_at

    def handed_over(self, journal: Journal) -> Scheduler:
        """A scheduler of all that a journal has, which is the one that was followed; its ledger is not followed on."""
        self.journal = journal
        self.catch_up()
        return Scheduler.of(self._ledger, self._now)

    def read_view(self, now: float) -> ReadView:
        """What is known, at a moment in seconds; not before the newest fact."""
        return ReadView(
            self._ledger, self.journal, ReadPoint(self._seq, max(now, self._now)), self._folded
        )

    def _read_on(self) -> bool:
        """Apply the facts that are new; False where that cannot go on from what is here."""
        if any(self._overrules(version) for version in self._ledger.policies[-1:]):
            return False
        after = self._seq if self._last is None else self._seq - 1
        try:
            facts = self.journal.facts(after)
            if self._last is not None and not _is_same(next(facts, None), self._last):
                log.warning("fact %d is another than it was: the journal is read anew", self._seq)
                return False
            for recorded in facts:
                if isinstance(recorded.fact, PolicyAdopted) and self._overrules(recorded.fact):
                    return False
                self._apply(recorded)
        except JournalError:
            if self.journal.compacted_to() > after:
                return False
            raise
        return True

    def _apply(self, recorded: RecordedFact) -> None:
        self._ledger.apply(recorded.fact)
        self._now = max(self._now, recorded.fact.at)
        self._seq, self._last = recorded.seq, recorded

    def _overrules(self, version: PolicyAdopted) -> bool:
        """Whether a version came after the one under which is folded here, and is another policy."""
        return version.number > self._version and _policy_of(version) != self._ledger.policy

    def _begin(self) -> None:
        """Go back to the newest snapshot, under the policy that is newest on record."""
        take_back()
        newest = RecordedPolicies(self.journal).newest()
        policy = self._otherwise if newest is None else _policy_of(newest)
        scheduler, seq = newest_restored(self.journal, policy, SnapshotCodec())
        is_there = seq > self.journal.compacted_to()
        self._last = next(self.journal.facts(seq - 1), None) if is_there else None
        self._ledger, self._seq, self._now = scheduler.ledger, seq, scheduler.now
        self._version = 0 if newest is None else newest.number

    def _folded(self, policy: Policy) -> Scheduler:
        """A scheduler of the facts up to here, under another policy. Raises Overtaken."""
        with without_collecting():
            scheduler, after = newest_restored(self.journal, policy, SnapshotCodec())
            if max(after, self.journal.compacted_to()) > self._seq:
                raise FollowerOutdated
            facts = takewhile(lambda each: each.seq <= self._seq, self.journal.facts(after))
            scheduler.recover(recorded.fact for recorded in facts)
        return scheduler


def _is_same(found: RecordedFact | None, known: RecordedFact) -> bool:
    """Whether a fact is the one that was read in its place: no other of its kind was recorded at that very moment."""
    if found is None:
        return False
    return (type(found.fact), found.fact.at) == (type(known.fact), known.fact.at)


def _policy_of(version: PolicyAdopted) -> Policy:
    return read_policy(version.text, version.source)
