"""Tests of snapshots and compaction for every journal: only covered rows are deleted."""

from pathlib import Path

import pytest

from gantree.journal.contract import Compacted, Journal, Snapshot
from gantree.model.errors import EventIdReused, JournalError
from gantree.model.events import CancelRequested
from gantree.testing.journal_contract import OpensJournals, ended, led, stop, tick


def lived(journal: Journal, epoch: int, turns: int = 4) -> None:
    """Turns of one event, two facts and an order each, and one event more that no turn has come to."""
    for turn in range(1, turns + 1):
        journal.append_inbox([tick(turn, at=turn)], epoch)
        facts = [ended(2 * turn - 1), ended(2 * turn)]
        journal.commit_turn(turn, facts, [stop(turn, epoch)], epoch)
    journal.append_inbox([tick(turns + 1, at=turns + 1)], epoch)


def at_turn(turn: int, text: str = "é ✓") -> Snapshot:
    """A snapshot of the end of such a turn."""
    return Snapshot(seq=2 * turn, cursor=turn, turns=turn, text=text)


class CompactionContract(OpensJournals):
    """Subclass and define `open`."""

    def test_a_fresh_journal_has_no_snapshot(self, journal: Journal) -> None:
        assert journal.latest_snapshot() is None
        assert (journal.snapshot_seq(), journal.compacted_to()) == (0, 0)

    def test_the_newest_snapshot_comes_back_letter_for_letter(self, tmp_path: Path) -> None:
        journal = self.open(tmp_path)
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(2), epoch)
        newest = at_turn(3, '{"é": "\\u0000 ✓ \U0001f600"}\n' * 10_000)
        journal.save_snapshot(newest, epoch)
        journal.close()
        again = self.open(tmp_path)
        assert again.latest_snapshot() == newest
        assert again.snapshot_seq() == newest.seq
        again.close()

    def test_a_snapshot_of_the_same_turn_takes_the_place_of_the_first(
        self, journal: Journal
    ) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(2, "a"), epoch)
        journal.save_snapshot(at_turn(2, "b"), epoch)
        assert journal.latest_snapshot() == at_turn(2, "b")

    @pytest.mark.parametrize(
        "wrong",
        [
            Snapshot(seq=3, cursor=2, turns=2, text=""),
            Snapshot(seq=4, cursor=3, turns=2, text=""),
            Snapshot(seq=10, cursor=5, turns=5, text=""),
        ],
        ids=["inside a turn", "beyond the cursor", "of the future"],
    )
    def test_a_snapshot_that_is_not_of_the_end_of_a_turn_is_refused(
        self, journal: Journal, wrong: Snapshot
    ) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        with pytest.raises(JournalError, match="does not end where that turn ended"):
            journal.save_snapshot(wrong, epoch)
        assert journal.latest_snapshot() is None

    def test_nothing_is_compacted_without_a_snapshot(self, journal: Journal) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        assert journal.compact(8, epoch) == Compacted(0, 0, 0)
        assert len(list(journal.facts())) == 8

    def test_what_the_snapshot_covers_goes_and_the_rest_stays(self, tmp_path: Path) -> None:
        journal = self.open(tmp_path)
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(3), epoch)
        assert journal.compact(100, epoch) == Compacted(facts=6, orders=3, events=3)
        journal.close()
        again = self.open(tmp_path)
        assert again.compacted_to() == 6
        assert [recorded.seq for recorded in again.facts(after=6)] == [7, 8]
        assert [seq for seq, _ in again.orders()] == [4]
        assert (again.cursor(), again.turns(), again.last_observed_at()) == (4, 4, 5.0)
        assert [entry.event.id for entry in again.read_inbox(again.cursor(), 9)] == ["t5"]
        assert again.latest_snapshot() == at_turn(3)
        again.close()

    def test_whole_turns_go_and_none_after_the_fact_that_was_named(self, journal: Journal) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(4), epoch)
        assert journal.compact(1, epoch) == Compacted(0, 0, 0)
        assert journal.compact(5, epoch) == Compacted(facts=4, orders=2, events=2)
        assert [recorded.seq for recorded in journal.facts(after=4)] == [5, 6, 7, 8]
        assert journal.compact(5, epoch) == Compacted(0, 0, 0)
        assert journal.compact(8, epoch) == Compacted(facts=4, orders=2, events=2)

    def test_facts_and_events_that_are_gone_are_an_error_and_no_silence(
        self, journal: Journal
    ) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(3), epoch)
        journal.compact(6, epoch)
        with pytest.raises(JournalError, match="facts up to 6 were compacted"):
            list(journal.facts())
        with pytest.raises(JournalError, match="event 1 was compacted"):
            journal.read_inbox(0, 10)

    def test_numbers_go_on_where_everything_was_compacted(self, journal: Journal) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(4), epoch)
        journal.compact(8, epoch)
        journal.commit_turn(5, [ended(9)], [stop(5, epoch)], epoch)
        assert [recorded.seq for recorded in journal.facts(after=8)] == [9]
        assert [seq for seq, _ in journal.orders()] == [5]
        assert (journal.cursor(), journal.turns()) == (5, 5)

    def test_ids_of_compacted_events_stay_refused(self, journal: Journal) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(4), epoch)
        journal.compact(8, epoch)
        assert journal.seen(["t1"])
        journal.append_inbox([tick(1), tick(6)], epoch)
        assert [entry.event.id for entry in journal.read_inbox(4, 9)] == ["t5", "t6"]

    def test_of_a_compacted_event_the_kind_is_known(self, journal: Journal) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        journal.save_snapshot(at_turn(4), epoch)
        journal.compact(8, epoch)
        with pytest.raises(EventIdReused, match="CancelRequested t1"):
            journal.append_inbox([CancelRequested(id="t1", observed_at=1, job="a")], epoch)

    def test_what_was_set_aside_is_kept_whole(self, journal: Journal) -> None:
        epoch = led(journal)
        lived(journal, epoch)
        journal.set_aside(2, "AssertionError: no", epoch)
        journal.save_snapshot(at_turn(4), epoch)
        assert journal.compact(8, epoch).events == 3
        assert [(aside.seq, aside.event) for aside in journal.all_set_aside()] == [
            (2, tick(2, at=2))
        ]
