"""Time that never goes back, the door into the inbox, and the alarm."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.control.clock import SteadyClock
from gantree.control.engine.wake_timer import AGAIN_AFTER_S, WakeTimer
from gantree.control.inbox import InboxWriter
from gantree.control.metrics.metrics import Metrics
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import JournalError
from gantree.model.events import CancelRequested, Event, GangStartFailed
from gantree.testing.journal_contract import led, tick
from support.examples import examples


class Hands:
    """Clock hands that a test moves."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def test_time_goes_on_with_the_steady_clock_whatever_the_wall_clock_does() -> None:
    wall, steady = Hands(1000.0), Hands(5.0)
    clock = SteadyClock(0.0, wall, steady)
    assert clock() == 1000.0
    wall.at, steady.at = 300.0, 7.5
    assert clock() == 1002.5
    wall.at = 9999.0
    assert clock() == 1002.5


@pytest.mark.parametrize(("wall", "newest", "now"), [(1000, 900, 1000), (1000, 1500, 1500)])
def test_time_starts_at_the_wall_clock_but_never_before_the_newest_event(
    wall: float, newest: float, now: float
) -> None:
    assert SteadyClock(newest, Hands(wall), Hands(0.0))() == now


def test_the_real_clock_does_not_go_back() -> None:
    clock = SteadyClock(0.0)
    moments = [clock() for _ in range(1000)]
    assert moments == sorted(moments)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.lists(st.floats(0, 1e6), max_size=4), max_size=4))
def test_observed_at_is_monotone_over_batches_and_restarts(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[float]]
) -> None:
    place = tmp_path_factory.mktemp("journal")
    number = 0
    for batch in batches:
        journal = SqliteJournal(place)
        intake = InboxWriter(journal, led(journal), lambda: None)
        for at in batch:
            number += 1
            intake.enqueue(tick(number, at))
        assert intake.flush() == bool(batch)
        entries = journal.read_inbox(0, 100)
        journal.close()
        stamps = [entry.event.observed_at for entry in entries]
        assert stamps == sorted(stamps)
        assert len(entries) == number


def test_what_was_told_wakes_and_is_appended_once(tmp_path: Path) -> None:
    journal, woken = SqliteJournal(tmp_path), []
    intake = InboxWriter(journal, led(journal), lambda: woken.append(1))
    intake.enqueue(tick(1))
    assert woken == [1]
    assert journal.read_inbox(0, 9) == ()
    assert intake.flush()
    assert not intake.flush()
    assert len(journal.read_inbox(0, 9)) == 1
    journal.close()


def test_what_is_told_before_the_flush_wakes_once(tmp_path: Path) -> None:
    journal, woken = SqliteJournal(tmp_path), []
    intake = InboxWriter(journal, led(journal), lambda: woken.append(1))
    for number in range(3):
        intake.enqueue(tick(number))
    assert woken == [1]
    assert intake.flush()
    intake.enqueue(tick(3))
    assert woken == [1, 1]
    journal.close()


def test_what_the_journal_did_not_take_is_kept(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    intake = InboxWriter(journal, led(journal), lambda: None)
    intake.enqueue(tick(1))
    with journal.database.writing() as db:  # on the connection that transactions share
        pages = db.exec_driver_sql("PRAGMA page_count").scalar_one()
        db.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    intake.enqueue(replace(tick(2), id="x" * 50_000))
    with pytest.raises(JournalError, match="full"):
        intake.flush()
    assert intake.flush(), "the limit was that connection's, which was given up"
    assert [len(entry.event.id) for entry in journal.read_inbox(0, 9)] == [2, 50_000]
    journal.close()


class Unsure(SqliteJournal):
    """Commits, and then does not know it: as where a connection breaks between the commit and its answer."""

    is_unsure = False

    def append_inbox(self, events: Sequence[Event], epoch: int) -> None:
        super().append_inbox(events, epoch)
        if self.is_unsure:
            raise JournalError("the connection was lost")


def test_time_does_not_go_back_behind_an_event_that_may_have_been_committed(tmp_path: Path) -> None:
    journal = Unsure(tmp_path)
    intake = InboxWriter(journal, led(journal), lambda: None)
    intake.append([tick(1, 10.0)])
    journal.is_unsure = True
    with pytest.raises(JournalError):
        intake.append([tick(2, 20.0)])
    journal.is_unsure = False
    intake.append([tick(3, 11.0)])
    stamps = [entry.event.observed_at for entry in journal.read_inbox(0, 9)]
    assert stamps == [10.0, 20.0, 20.0]
    journal.close()


def test_what_was_told_and_committed_unknown_to_us_is_there_once(tmp_path: Path) -> None:
    journal = Unsure(tmp_path)
    intake = InboxWriter(journal, led(journal), lambda: None)
    intake.enqueue(tick(1, 10.0))
    journal.is_unsure = True
    with pytest.raises(JournalError):
        intake.flush()
    assert intake.unflushed == 1, "it may be in the journal, and is told again"
    journal.is_unsure = False
    intake.enqueue(tick(2, 5.0))
    assert intake.flush()
    assert [each.event.id for each in journal.read_inbox(0, 9)] == ["t1", "t2"]
    assert intake.unflushed == 0
    journal.close()


def test_an_emitted_event_with_the_id_of_another_is_counted_and_named_and_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, metrics = SqliteJournal(tmp_path), Metrics()
    intake = InboxWriter(journal, led(journal), lambda: None, metrics)
    intake.append([tick(1)])
    for event in (tick(2), CancelRequested(id="t1", observed_at=1, job="a"), tick(3), tick(1)):
        intake.enqueue(event)
    assert intake.flush()
    assert [each.event.id for each in journal.read_inbox(0, 9)] == ["t1", "t2", "t3"]
    assert intake.unflushed == 0
    assert "CancelRequested t1" in caplog.text
    assert metrics.registry.get_sample_value("gantree_events_id_reused_total") == 1
    journal.close()


def test_a_reason_that_quotes_odd_bytes_is_made_readable(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    intake = InboxWriter(journal, led(journal), lambda: None)
    reason = "no file " + b"\xff".decode(errors="surrogateescape")
    intake.enqueue(GangStartFailed(id="f", observed_at=1, job="a", attempt=1, reason=reason))
    intake.flush()
    event: Event = journal.read_inbox(0, 9)[0].event
    assert isinstance(event, GangStartFailed)
    assert event.reason == "no file ?"
    journal.close()


def test_the_alarm_rings_once_a_moment() -> None:
    alarm = WakeTimer(epoch=3)
    assert alarm.seconds_left(None, 10.0) is None
    assert alarm.fire(None, 10.0) is None
    assert alarm.seconds_left(12.0, 10.0) == 2.0
    assert alarm.fire(12.0, 10.0) is None
    first = alarm.fire(12.0, 12.5)
    assert first is not None
    assert (first.id, first.observed_at) == ("time-passed/3/1", 12.5)
    assert alarm.fire(12.0, 12.6) is None
    second = alarm.fire(12.4, 12.6)
    assert second is not None
    assert second.id == "time-passed/3/2"


def test_a_moment_that_stays_due_is_told_again_only_after_a_while() -> None:
    alarm = WakeTimer(epoch=1)
    rung = [at for at in range(30) if alarm.fire(0.0, 5.0 + at / 10 * AGAIN_AFTER_S) is not None]
    assert rung == [0, 10, 20]
