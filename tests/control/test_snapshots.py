"""Snapshots while a daemon runs: taken on time, kept in the journal, and what a start makes of them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.control import snapshots
from gantree.control.snapshots import Snapshots
from gantree.core.scheduler import Decision
from gantree.journal.contract import RecordedFact
from gantree.journal.sqlite import SqliteJournal
from gantree.model.events import Event
from support.random_lives import POLICIES, Lives
from support.same_ledger import differences


class Recorded(Lives):
    """Random lives of which each decision is a turn in a journal."""

    journal: SqliteJournal
    epoch: int

    def __init__(self, journal: SqliteJournal, epoch: int) -> None:
        self.journal, self.epoch = journal, epoch
        super().__init__(5, POLICIES["shares"])

    def decided(self, events: list[Event], decision: Decision) -> None:
        self.journal.append_inbox(events, self.epoch)
        cursor = self.journal.cursor() + len(events)
        self.journal.commit_turn(cursor, decision.facts, decision.orders, self.epoch)


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    return SqliteJournal(tmp_path)


def led(journal: SqliteJournal) -> int:
    epoch = journal.lead("test", 60.0)
    assert epoch is not None
    return epoch


def test_a_start_reads_the_newest_snapshot_and_folds_only_what_came_after(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = led(journal)
    lives, taking = Recorded(journal, epoch), Snapshots(journal, epoch, every_facts=20)
    for _ in range(60):
        lives.step()
        taking.follow(lives.scheduler)
        taking.wait()
    kept = journal.latest_snapshot()
    assert kept is not None and journal.last_fact() - 20 <= kept.seq < journal.last_fact()
    read: list[int] = []
    facts = journal.facts

    def facts_after(after: int = 0) -> Iterator[RecordedFact]:
        read.append(after)
        return facts(after)

    monkeypatch.setattr(journal, "facts", facts_after)
    twin = Snapshots(journal, epoch).fold(lives.policy)
    assert read == [kept.seq]
    assert differences(twin.ledger, lives.scheduler.ledger, any_order=True) == []
    journal.close()


def test_after_all_that_a_snapshot_covers_was_compacted_a_start_decides_the_same(
    journal: SqliteJournal,
) -> None:
    epoch = led(journal)
    lives, taking = Recorded(journal, epoch), Snapshots(journal, epoch, every_facts=30)
    for _ in range(90):
        lives.step()
    taking.close(lives.scheduler)
    assert journal.compact(journal.last_fact(), epoch).facts == len(lives.facts)
    lives.twins.append(("a start", Snapshots(journal, epoch).fold(lives.policy)))
    for _ in range(20):
        lives.step()
    journal.close()


def test_a_clean_stop_takes_a_snapshot_where_it_is_worth_it(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = led(journal)
    lives = Recorded(journal, epoch)
    for _ in range(60):
        lives.step()
    Snapshots(journal, epoch).close(lives.scheduler)
    assert journal.latest_snapshot() is None, "a few facts are folded faster"
    monkeypatch.setattr(snapshots, "WORTH_A_STOP", 5)
    Snapshots(journal, epoch).close(lives.scheduler)
    kept = journal.latest_snapshot()
    assert kept is not None and kept.seq == journal.last_fact()
    journal.close()


def test_a_leader_whose_epoch_is_over_keeps_no_snapshot_and_stops_all_the_same(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    epoch = led(journal)
    lives, taking = Recorded(journal, epoch), Snapshots(journal, epoch, every_facts=5)
    for _ in range(50):
        lives.step()
    led(journal)
    with caplog.at_level(logging.WARNING):
        taking.close(lives.scheduler)
    assert "no snapshot at the stop" in caplog.text
    assert journal.latest_snapshot() is None
    journal.close()
