"""Tests for every journal. A journal's own test module subclasses the contracts and says how to open it.

    class TestSqlite(JournalContract, LeadershipContract, CompactionContract):
        def open(self, place: Path) -> Journal:
            return SqliteJournal(place)

Here is what goes in and comes out; `leadership_contract` and `compaction_contract` hold the other two. What is
particular to one database (locks, files, damage) is tested beside it.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from gantree.journal.contract import Journal
from gantree.model.errors import BadInput, EventIdReused
from gantree.model.events import (
    CancelRequested,
    ClusterObserved,
    GangEnded,
    JobSubmitted,
    TimePassed,
)
from gantree.model.facts import FabricDefined, GangPreempted, JobAccepted, JobEnded
from gantree.model.orders import MemberLaunch, StartGang, StopGang
from gantree.model.phases import Phase
from gantree.model.service_facts import ReplicaReadinessNoted, ServiceScaled
from gantree.model.site_facts import NodeMarked
from gantree.testing.builders import cluster, job


def tick(number: int, at: float = 1.0) -> TimePassed:
    """An event without content."""
    return TimePassed(id=f"t{number}", observed_at=at)


def _cancelled(event_id: str, job_id: str) -> CancelRequested:
    return CancelRequested(id=event_id, observed_at=1, job=job_id)


def stop(number: int, epoch: int) -> StopGang:
    """An order."""
    return StopGang(id=f"a/{number}/stop", job="a", attempt=number, epoch=epoch, grace_s=30)


def ended(number: int) -> JobEnded:
    """A fact."""
    return JobEnded(at=number, job=f"j{number}", outcome=Phase.FAILED, exit_code=1, reason="é ✓")


def led(journal: Journal) -> int:
    """Begin an epoch; its lease has run out already, so that the next one may begin at any time."""
    epoch = journal.lead("a test", 0.0)
    assert epoch is not None
    return epoch


class OpensJournals:
    """What the tests of journals need. Subclass and define `open`."""

    def open(self, place: Path) -> Journal:
        """Open the journal that lives at a place, anew or again."""
        raise NotImplementedError

    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        """A fresh journal."""
        journal = self.open(tmp_path)
        yield journal
        journal.close()


class JournalContract(OpensJournals):
    """What goes in comes out, in order and whole."""

    def test_a_fresh_journal_is_empty(self, journal: Journal) -> None:
        assert journal.read_inbox(0, 10) == ()
        assert (list(journal.facts()), list(journal.orders())) == ([], [])
        assert journal.cursor() == journal.turns() == 0
        assert journal.last_observed_at() == 0.0
        assert journal.all_set_aside() == ()

    def test_the_inbox_keeps_order_and_counts_from_one(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(5), tick(3)], epoch)
        journal.append_emitted([tick(4), tick(3)], epoch)
        assert [(entry.seq, entry.event.id) for entry in journal.read_inbox(0, 10)] == [
            (1, "t5"),
            (2, "t3"),
            (3, "t4"),
        ]

    def test_reading_respects_place_and_limit(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(number) for number in range(5)], epoch)
        assert [entry.seq for entry in journal.read_inbox(1, 2)] == [2, 3]
        assert journal.read_inbox(5, 2) == ()

    def test_the_backlog_counts_what_no_turn_has_come_to(self, journal: Journal) -> None:
        epoch = led(journal)
        assert journal.backlog() == 0
        journal.append_inbox([tick(number) for number in range(5)], epoch)
        journal.commit_turn(2, [], [], epoch)
        assert journal.backlog() == 3
        journal.set_aside(4, "AssertionError: broken", epoch)
        assert journal.backlog() == 2

    def test_an_id_that_was_ever_appended_is_dropped(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(1), tick(1), tick(2)], epoch)
        journal.append_inbox([replace(tick(1), observed_at=9.0), tick(3)], epoch)
        entries = journal.read_inbox(0, 10)
        assert [entry.event.id for entry in entries] == ["t1", "t2", "t3"]
        assert entries[0].event.observed_at == 1.0
        assert journal.seen(["t4", "t1"]) == {"t1"}
        assert journal.seen([]) == frozenset()
        assert [journal.place_of(f"t{number}") for number in (1, 3, 4)] == [1, 3, None]

    def test_of_an_event_only_the_times_may_differ_when_it_is_appended_again(
        self, journal: Journal
    ) -> None:
        epoch = led(journal)
        ended = GangEnded(id="e", observed_at=1.0, occurred_at=0.5, job="a", attempt=1, exit_code=0)
        journal.append_inbox([ended], epoch)
        again = replace(ended, observed_at=9.0, occurred_at=0.75)
        journal.append_inbox([again, tick(1), again], epoch)
        journal.append_emitted([tick(2), again, tick(1), tick(3)], epoch)
        assert [entry.event.id for entry in journal.read_inbox(0, 10)] == ["e", "t1", "t2", "t3"]

    @pytest.mark.parametrize("is_first_on_record", [True, False])
    def test_another_event_under_a_known_id_is_refused_with_all_beside_it(
        self, journal: Journal, is_first_on_record: bool
    ) -> None:
        epoch = led(journal)
        first, other = _cancelled("x", "a"), _cancelled("x", "b")
        if is_first_on_record:
            journal.append_inbox([first], epoch)
        before = journal.read_inbox(0, 10)
        with pytest.raises(EventIdReused, match="CancelRequested x") as caught:
            journal.append_inbox([tick(1), first, other, tick(2)], epoch)
        assert caught.value.events == (("x", "CancelRequested"),)
        assert journal.read_inbox(0, 10) == before
        journal.append_inbox([tick(1)], epoch)
        assert journal.seen(["x", "t1"]) == ({"x", "t1"} if is_first_on_record else {"t1"})

    def test_of_emitted_events_the_others_are_taken(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(1)], epoch)
        events = [tick(2), _cancelled("t1", "a"), tick(3), tick(1)]
        with pytest.raises(EventIdReused, match="CancelRequested t1"):
            journal.append_emitted(events, epoch)
        entries = journal.read_inbox(0, 10)
        assert [entry.event.id for entry in entries] == ["t1", "t2", "t3"]
        assert entries[0].event == tick(1)
        with pytest.raises(EventIdReused):
            journal.append_emitted(events, epoch)
        assert len(journal.read_inbox(0, 10)) == 3

    def test_ids_are_dropped_after_reopening_too(self, tmp_path: Path) -> None:
        first = self.open(tmp_path)
        epoch = led(first)
        first.append_inbox([tick(1)], epoch)
        first.close()
        again = self.open(tmp_path)
        epoch = led(again)
        again.append_inbox([tick(1)], epoch)
        assert len(again.read_inbox(0, 10)) == 1
        again.close()

    def test_everything_comes_back_equal_after_reopening(self, tmp_path: Path) -> None:
        spec = job("a", members=2, gpus=8, slices=(2, "leaf"), time_limit_s=5)
        events = [
            ClusterObserved(id="c", observed_at=1, occurred_at=0.5, cluster=cluster(nics=4)),
            JobSubmitted(id="s", observed_at=1.1, job="a", spec=spec),
            TimePassed(id="for ever", observed_at=inf),
        ]
        facts = [
            FabricDefined(at=1, cluster=cluster()),
            JobAccepted(at=1.1, job="a", spec=spec, priority=200, seq=0),
            ended(3),
        ]
        launch = MemberLaunch("w", 0, "n0", 0, 0, 8, (0, 1), ("mlx5_0",), ("true",), (("A", "é"),))
        journal = self.open(tmp_path)
        epoch = led(journal)
        orders = [
            StartGang(id="a/1/start", job="a", attempt=1, epoch=1, world_size=8, members=(launch,)),
            stop(1, epoch),
        ]
        journal.append_inbox(events, epoch)
        journal.commit_turn(3, facts, orders, epoch)
        journal.close()
        again = self.open(tmp_path)
        assert [entry.event for entry in again.read_inbox(0, 9)] == events
        assert [recorded.fact for recorded in again.facts()] == facts
        assert [order for _, order in again.orders()] == orders
        again.close()

    def test_a_turn_is_cursor_facts_and_orders_together(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(1), tick(2)], epoch)
        journal.commit_turn(1, [ended(1), ended(2)], [stop(1, epoch)], epoch)
        journal.commit_turn(2, [ended(3)], [], epoch)
        assert journal.cursor() == 2
        assert journal.turns() == 2
        assert [(fact.seq, fact.fact) for fact in journal.facts()] == [
            (1, ended(1)),
            (2, ended(2)),
            (3, ended(3)),
        ]
        assert [fact.seq for fact in journal.facts(after=2)] == [3]
        assert [order for _, order in journal.orders()] == [stop(1, epoch)]

    def test_a_turn_that_cannot_be_written_down_leaves_nothing(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(1)], epoch)
        unwritable = replace(ended(2), reason="\ud800")
        with pytest.raises(BadInput):
            journal.commit_turn(1, [ended(1), unwritable], [stop(1, epoch)], epoch)
        assert journal.cursor() == journal.turns() == 0
        assert (list(journal.facts()), list(journal.orders())) == ([], [])

    def test_an_event_that_cannot_be_written_down_takes_its_batch_with_it(
        self, journal: Journal
    ) -> None:
        epoch = led(journal)
        unwritable = _cancelled("x", "\udc80")
        with pytest.raises(BadInput):
            journal.append_inbox([tick(1), unwritable], epoch)
        assert journal.read_inbox(0, 10) == ()

    def test_the_cursor_never_goes_back(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(1), tick(2)], epoch)
        journal.commit_turn(2, [], [], epoch)
        with pytest.raises(AssertionError):
            journal.commit_turn(1, [ended(1)], [], epoch)
        assert list(journal.facts()) == []

    def test_epochs_grow_over_reopening(self, tmp_path: Path) -> None:
        epochs = []
        for _ in range(3):
            journal = self.open(tmp_path)
            epochs += [led(journal), led(journal)]
            journal.close()
        assert epochs == sorted(set(epochs))
        assert epochs[0] > 0

    def test_what_was_set_aside_is_read_no_more_and_kept(self, tmp_path: Path) -> None:
        journal = self.open(tmp_path)
        epoch = led(journal)
        journal.append_inbox([tick(1), tick(2), tick(3)], epoch)
        journal.set_aside(2, "AssertionError: no", epoch)
        journal.close()
        again = self.open(tmp_path)
        epoch = led(again)
        assert [entry.seq for entry in again.read_inbox(0, 10)] == [1, 3]
        assert [(aside.seq, aside.event, aside.error) for aside in again.all_set_aside()] == [
            (2, tick(2), "AssertionError: no")
        ]
        again.append_inbox([tick(2)], epoch)
        assert len(again.read_inbox(0, 10)) == 2
        again.close()

    def test_the_last_time_is_that_of_the_last_event(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(1, at=5.0), tick(2, at=7.25)], epoch)
        assert journal.last_observed_at() == 7.25

    def test_facts_can_be_read_while_others_are_written(self, journal: Journal) -> None:
        epoch = led(journal)
        for number in range(3):
            journal.commit_turn(0, [ended(number)], [], epoch)
        seen = []
        for recorded in journal.facts():
            seen.append(recorded.seq)
            if recorded.seq == 1:
                journal.commit_turn(0, [ended(9)], [], epoch)
        assert seen[:3] == [1, 2, 3]

    def test_many_facts_come_back_in_order_over_pages(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.commit_turn(0, [ended(number) for number in range(2500)], [], epoch)
        assert [recorded.seq for recorded in journal.facts()] == list(range(1, 2501))

    def test_the_facts_of_one_kind_come_without_the_others(self, journal: Journal) -> None:
        epoch = led(journal)
        lost = NodeMarked(at=5, node="n0", usable=False, reason="fan")
        journal.commit_turn(0, [ended(1), lost, ended(2)], [], epoch)
        assert [(each.seq, each.fact) for each in journal.facts_of(NodeMarked)] == [(2, lost)]
        assert [each.seq for each in journal.facts_of(JobEnded)] == [1, 3]
        assert [each.seq for each in journal.facts_of(JobEnded, 1)] == [3]
        assert list(journal.facts_of(FabricDefined)) == []

    def test_the_facts_about_one_job_come_without_those_that_only_name_it(
        self, journal: Journal
    ) -> None:
        epoch = led(journal)
        for_another = GangPreempted(at=5, job="j7", attempt=1, by="j_1")
        journal.commit_turn(0, [ended(1), for_another, ended(2)], [], epoch)
        (own,) = (each for each in journal.facts() if each.seq == 2)
        assert list(journal.facts_about("j7", 0, 3)) == [own]
        assert list(journal.facts_about("j_1", 0, 3)) == []
        assert list(journal.facts_about("j7", 2, 3)) == []
        assert list(journal.facts_about("j7", 0, 1)) == []

    def test_the_facts_about_a_service_are_not_those_about_its_replicas(
        self, journal: Journal
    ) -> None:
        scaled = ServiceScaled(at=5, service="chat", replicas=2, before=1)
        ready = ReplicaReadinessNoted(at=6, job="chat.1", attempt=1, ready=True, reason="chat")
        journal.commit_turn(0, [ready, scaled], [], led(journal))
        assert [each.fact for each in journal.facts_about("chat", 0, 2)] == [scaled]
        assert [each.fact for each in journal.facts_about("chat.1", 0, 2)] == [ready]

    def test_an_id_that_no_database_could_keep_is_refused_and_was_never_seen(
        self, journal: Journal
    ) -> None:
        with pytest.raises(BadInput):
            journal.append_inbox([tick(1), TimePassed(id="a\0b", observed_at=1)], led(journal))
        assert journal.read_inbox(0, 10) == ()
        assert not journal.seen(["a\0b", "\udc80"])
        assert journal.place_of("a\0b") is None

    def test_an_error_is_kept_beside_its_event_whatever_is_in_it(self, journal: Journal) -> None:
        epoch = led(journal)
        journal.append_inbox([tick(1)], epoch)
        journal.set_aside(1, "é ✓ \0 \udc80", epoch)
        assert [aside.error for aside in journal.all_set_aside()] == ["é ✓ ? ?"]

    def test_nothing_is_appended_where_there_is_nothing(self, journal: Journal) -> None:
        journal.append_inbox([], led(journal))
        assert journal.read_inbox(0, 10) == ()

    def test_closing_twice_is_closing_once(self, journal: Journal) -> None:
        journal.close()
        journal.close()
