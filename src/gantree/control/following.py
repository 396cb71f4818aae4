"""A ledger that follows a journal which somebody else writes: the newest snapshot, then the facts as they come.

It comes to the same ledger as the controller's, the same way as a restart does: facts are folded, a change of policy is
a fold anew under that policy. Facts that were compacted before they were read here are in a snapshot by then, so it
begins again from that. Nothing is decided and nothing is written.
"""

from itertools import takewhile

from gantree.control.clock import boot_time
from gantree.control.garbage import take_back
from gantree.control.policies import newest_on_record
from gantree.control.reading import Moment, Reading
from gantree.control.snapshots import newest_restored, without_collecting
from gantree.core.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.formats.policies import read_policy
from gantree.journal.contract import Journal
from gantree.journal.snapshots import SnapshotCodec
from gantree.model.errors import JournalError
from gantree.model.facts import PolicyAdopted
from gantree.policy.rules import Policy


class Overtaken(Exception):  # no GantreeError: whoever serves questions catches up and asks again
    """The journal has a newer snapshot than the facts that were read here."""


class Follower:
    """Follows a journal, which is only read. otherwise is the policy that rules where none is on record."""

    def __init__(self, journal: Journal, otherwise: Policy) -> None:
        """Reads all there is. Raises JournalError for a journal that cannot be read."""
        self.journal = journal
        self._otherwise = otherwise
        self._ledger, self._seq, self._now, self._version = Ledger(otherwise), 0, 0.0, 0
        self._looked_at = boot_time()
        self.begin_again()

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

    def begin_again(self) -> None:
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

    def reading(self, now: float) -> Reading:
        """What is known, at a moment in seconds; not before the newest fact."""
        return Reading(
            self._ledger, self.journal, Moment(self._seq, max(now, self._now)), self._folded
        )

    def _read_on(self) -> bool:
        """Apply the facts that are new; False where that cannot go on from what is here."""
        if any(self._overrules(version) for version in self._ledger.policies[-1:]):
            return False
        try:
            for recorded in self.journal.facts(self._seq):
                if isinstance(recorded.fact, PolicyAdopted) and self._overrules(recorded.fact):
                    return False
                self._ledger.apply(recorded.fact)
                self._now = max(self._now, recorded.fact.at)
                self._seq = recorded.seq
        except JournalError:
            if self.journal.compacted_to() > self._seq:
                return False
            raise
        return True

    def _overrules(self, version: PolicyAdopted) -> bool:
        """Whether a version came after the one under which is folded here, and is another policy."""
        return version.number > self._version and _policy_of(version) != self._ledger.policy

    def _begin(self) -> None:
        """Go back to the newest snapshot, under the policy that is newest on record."""
        take_back()
        newest = newest_on_record(self.journal)
        policy = self._otherwise if newest is None else _policy_of(newest)
        scheduler, self._seq = newest_restored(self.journal, policy, SnapshotCodec())
        self._ledger, self._now = scheduler.ledger, scheduler.now
        self._version = 0 if newest is None else newest.number

    def _folded(self, policy: Policy) -> Scheduler:
        """A scheduler of the facts up to here, under another policy. Raises Overtaken."""
        with without_collecting():
            scheduler, after = newest_restored(self.journal, policy, SnapshotCodec())
            if max(after, self.journal.compacted_to()) > self._seq:
                raise Overtaken
            facts = takewhile(lambda each: each.seq <= self._seq, self.journal.facts(after))
            scheduler.recover(recorded.fact for recorded in facts)
        return scheduler


def _policy_of(version: PolicyAdopted) -> Policy:
    return read_policy(version.text, version.source)
