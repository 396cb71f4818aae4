"""Leadership, with a clock of the test's own: when a term is over, and that it then stays so."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantree.control.engine import leadership as leading
from gantree.control.engine.leadership import LEASE_S, MARGIN, Leader, Leadership, Term
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import JournalError, NotLeading


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Election:
    """The part of a journal that leadership asks, as the test has it answer."""

    def __init__(self) -> None:
        self.epoch, self.holder = 0, None
        self.renewed: Callable[[], bool] = lambda: True
        self.asked = threading.Semaphore(0)
        self.resigned: list[int] = []
        self.before: Callable[[], None] = lambda: None

    def lead(self, holder: str, for_s: float) -> int | None:
        self.before()
        if self.holder is not None:
            return None
        self.epoch, self.holder = self.epoch + 1, holder  # type: ignore[assignment]  # None before the first
        return self.epoch

    def renew(self, epoch: int, for_s: float) -> bool:
        try:
            return self.renewed()
        finally:
            self.asked.release()

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)
        self.holder = None

    def leader(self) -> tuple[int, str | None]:
        return self.epoch, self.holder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals follow each other at once, so that no test waits."""
    monkeypatch.setattr(leading, "RENEW_EVERY", 0.001 / LEASE_S)
    monkeypatch.setattr(leading, "RETRY_EVERY", 0.001 / LEASE_S)


def leadership(journal: Any, time: Time, **more: Any) -> Leadership:
    return Leadership(journal, "a", "https://a:1", steady=time, **more)


def renewals(election: Election, count: int = 3) -> None:
    for _ in range(count):
        assert election.asked.acquire(timeout=300)


def test_a_term_is_over_at_its_deadline_and_stays_over() -> None:
    time = Time()
    term = Term(7, deadline_s=102.0, steady=time)
    time.now_s = 101.9
    term.check()
    term.extend(103.0)
    time.now_s = 103.0
    assert not term.is_on
    term.extend(200.0)
    with pytest.raises(NotLeading, match="epoch 7 is over"):
        term.check()
    time.now_s = 50.0
    assert not term.is_on, "not even a clock that goes back brings it back"


def test_the_deadline_is_counted_from_before_the_renewal_was_sent(quick: None) -> None:
    time, election = Time(), Election()
    mine = leadership(election, time)
    term = mine.campaign()
    assert term is not None
    assert term.deadline_s == 100.0 + LEASE_S * (1 - MARGIN)

    was_slow = threading.Event()

    def slow() -> bool:
        time.now_s += 0.5
        was_slow.set()
        return True

    election.renewed = slow
    assert was_slow.wait(90)
    election.renewed = lambda: False
    assert term.wait(90)
    assert term.deadline_s <= time.now_s - 0.5 + LEASE_S * (1 - MARGIN)


def test_who_cannot_renew_stops_and_a_late_renewal_changes_nothing(quick: None) -> None:
    time, election = Time(), Election()

    def cut() -> bool:
        raise JournalError("cut off")

    election.renewed = cut
    mine = leadership(election, time)
    term = mine.campaign()
    assert term is not None
    renewals(election)
    assert mine.is_leading
    time.now_s += LEASE_S * (1 - MARGIN)
    assert not mine.is_leading
    election.renewed = lambda: True
    with pytest.raises(NotLeading):
        mine.check()
    assert not term.is_on


def test_a_leader_that_hears_of_a_newer_epoch_stops_at_once(quick: None) -> None:
    time, election = Time(), Election()
    election.renewed = lambda: False
    mine = leadership(election, time)
    term = mine.campaign()
    assert term is not None
    assert term.wait(90)
    assert mine.term is None


def test_an_election_that_took_longer_than_the_lease_is_given_back() -> None:
    time, election = Time(), Election()

    def slow() -> None:
        time.now_s += LEASE_S

    election.before = slow
    assert leadership(election, time).campaign() is None
    assert election.resigned == [1]


def test_after_an_election_that_took_nearly_the_lease_it_is_renewed_at_once() -> None:
    time, election = Time(), Election()

    def slow() -> None:
        time.now_s += 4900.0

    election.before = slow
    term = leadership(election, time, lease_s=6000.0).campaign()
    assert term is not None
    renewals(election, 1)
    term.end()


def test_who_does_not_lead_knows_who_does_and_where() -> None:
    time, election = Time(), Election()
    election.epoch, election.holder = 4, "b at https://b:8443"  # type: ignore[assignment]  # None before the first
    mine = leadership(election, time)
    assert mine.campaign() is None
    assert mine.known == Leader("b", "https://b:8443", 4)
    told = mine.not_leading()
    assert str(told) == "a stands by: b leads at https://b:8443"
    assert (told.leader, told.url) == ("b", "https://b:8443")
    election.holder = "host process 7"  # type: ignore[assignment]  # the same
    assert mine.leader() == Leader("host process 7", None, 4)


def test_a_database_that_does_not_answer_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    time, election = Time(), Election()

    def cut() -> None:
        raise JournalError("cut off")

    election.before = cut
    mine = leadership(election, time)
    assert [mine.campaign() for _ in range(3)] == [None] * 3
    assert (mine.trouble, caplog.text.count("nobody can be elected")) == ("cut off", 1)
    election.before = lambda: None
    assert mine.campaign() is not None
    assert mine.trouble is None
    mine.resign()


def test_a_journal_that_one_process_owns_is_led_until_it_is_given_back(tmp_path: Path) -> None:
    time, journal = Time(), SqliteJournal(tmp_path)
    mine = leadership(journal, time, lease_s=None)
    term = mine.campaign()
    assert term is not None
    time.now_s += 10**9
    assert term.is_on
    mine.resign()
    assert not term.is_on
    assert journal.leader() == (1, None)
    journal.close()
