"""Tests of leadership for every journal: one epoch at a time, and no writes of an older one.

A lease of no length has run out when it is taken, so these tests need not wait. How leases of two processes keep each
other away is tested beside each database.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from gantree.journal.contract import Journal, Snapshot
from gantree.model.errors import JournalError
from gantree.testing.journal_contract import OpensJournals, ended, led, stop, tick

WRITES: dict[str, Callable[[Journal, int], object]] = {
    "append_inbox": lambda journal, epoch: journal.append_inbox([tick(9)], epoch),
    "append_inbox of nothing": lambda journal, epoch: journal.append_inbox([], epoch),
    "append_emitted": lambda journal, epoch: journal.append_emitted([tick(9)], epoch),
    "commit_turn": lambda journal, epoch: journal.commit_turn(2, [ended(1)], [stop(1, 1)], epoch),
    "set_aside": lambda journal, epoch: journal.set_aside(1, "error", epoch),
    "save_snapshot": lambda journal, epoch: journal.save_snapshot(
        Snapshot(seq=1, cursor=1, turns=1, text="other"), epoch
    ),
    "compact": lambda journal, epoch: journal.compact(1, epoch),
}
"""Everything that a leader may write."""


def readable(journal: Journal) -> tuple[object, ...]:
    """All that can be read."""
    return (
        journal.read_inbox(1, 100),
        journal.cursor(),
        journal.turns(),
        journal.compacted_to(),
        list(journal.facts(after=journal.compacted_to())),
        list(journal.orders()),
        journal.all_set_aside(),
        journal.latest_snapshot(),
    )


def written(journal: Journal, epoch: int) -> None:
    """Two events, a turn about the first, and its snapshot."""
    journal.append_inbox([tick(1), tick(2)], epoch)
    journal.commit_turn(1, [ended(0)], [stop(0, epoch)], epoch)
    journal.save_snapshot(Snapshot(seq=1, cursor=1, turns=1, text="one"), epoch)


class LeadershipContract(OpensJournals):
    """Subclass and define `open`."""

    def test_at_first_nobody_leads(self, journal: Journal) -> None:
        assert journal.leader() == (0, None)
        assert not journal.renew(0, 60)

    def test_whoever_leads_is_named(self, journal: Journal) -> None:
        assert journal.lead("n0 process 7", 60) == 1
        assert journal.leader() == (1, "n0 process 7")

    @pytest.mark.parametrize("write", WRITES)
    def test_the_leader_may_write(self, journal: Journal, write: str) -> None:
        epoch = led(journal)
        written(journal, epoch)
        before = readable(journal)
        WRITES[write](journal, epoch)
        changes = write != "append_inbox of nothing"
        assert (readable(journal) != before) == changes

    @pytest.mark.parametrize("write", WRITES)
    def test_a_leader_whose_epoch_is_over_writes_nothing(
        self, journal: Journal, write: str
    ) -> None:
        old = led(journal)
        written(journal, old)
        led(journal)
        before = readable(journal)
        with pytest.raises(JournalError, match=f"epoch 2 has begun, {old} is over"):
            WRITES[write](journal, old)
        assert readable(journal) == before

    @pytest.mark.parametrize("write", WRITES)
    def test_a_leader_that_has_resigned_writes_nothing(self, journal: Journal, write: str) -> None:
        epoch = led(journal)
        written(journal, epoch)
        journal.resign(epoch)
        before = readable(journal)
        with pytest.raises(JournalError, match="resigned"):
            WRITES[write](journal, epoch)
        assert readable(journal) == before

    @pytest.mark.parametrize("write", WRITES)
    def test_who_has_never_led_writes_nothing(self, journal: Journal, write: str) -> None:
        with pytest.raises(JournalError):
            WRITES[write](journal, 0)
        with pytest.raises(JournalError):
            WRITES[write](journal, 1)
        assert readable(journal) == ((), 0, 0, 0, [], [], (), None)

    def test_only_the_newest_epoch_is_renewed(self, journal: Journal) -> None:
        old = led(journal)
        assert journal.renew(old, 0.0)
        new = led(journal)
        assert not journal.renew(old, 60)
        assert journal.renew(new, 60)
        journal.resign(new)
        assert not journal.renew(new, 60)

    def test_resigning_an_epoch_that_is_over_changes_nothing(self, journal: Journal) -> None:
        old = led(journal)
        new = journal.lead("the next", 60)
        journal.resign(old)
        assert journal.leader() == (new, "the next")
        journal.append_inbox([tick(1)], new or 0)

    def test_who_leads_is_known_after_reopening(self, tmp_path: Path) -> None:
        journal = self.open(tmp_path)
        epoch = journal.lead("a", 60)
        journal.close()
        again = self.open(tmp_path)
        assert again.leader() == (epoch, "a")
        again.close()
