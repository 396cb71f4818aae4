"""What a daemon that stands by reads ahead: the same as a start would read, whatever happened on the way."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter, itemgetter
from pathlib import Path
from random import Random

import pytest

from gantree.control.engine.controller import Controller
from gantree.control.readers import standby_fold
from gantree.control.readers.follower import Follower
from gantree.control.readers.standby_fold import StandbyFold
from gantree.control.requests.policy_text import PolicyText
from gantree.control.snapshots import Snapshots
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import LedgerSnapshot, snapshot_of
from gantree.journal.contract import RecordedFact, Snapshot
from gantree.journal.sqlite import SqliteJournal, SqliteReader
from gantree.model.errors import JournalError
from gantree.model.facts import Fact
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.topology.occupancy.occupancy_snapshot import OccupancySnapshot
from support.examples import seeds
from support.random_lives import POLICIES
from support.recorded_lives import Recorded
from support.recording import RecordingCluster
from support.same_ledger import differences

SOON_S = 300.0
SITE = cluster(leaves=1, nodes=2)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    opened = SqliteJournal(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def reader(tmp_path: Path, journal: SqliteJournal) -> Iterator[SqliteReader]:
    opened = SqliteReader(tmp_path / "state")
    yield opened
    opened.close()


def cold(journal: SqliteJournal, policy: Policy) -> Scheduler:
    """As a start folds it."""
    return Snapshots(journal, epoch=1).fold(policy)


def told(scheduler: Scheduler) -> LedgerSnapshot:
    """A ledger as it is written down, in an order of its own: a fold tells otherwise in which things came.

    The moment of the last decision is left out too: where that came to no fact, only a snapshot can know of it.
    """
    snapshot = snapshot_of(scheduler)
    books, occupancy = snapshot.books, snapshot.books.occupancy
    assert occupancy is not None
    nodes = [replace(node, holders=tuple(sorted(node.holders))) for node in occupancy.nodes]
    in_order = replace(
        books,
        now=0.0,
        occupancy=OccupancySnapshot(
            tuple(sorted(occupancy.owners, key=itemgetter(0))), tuple(nodes)
        ),
        uses=tuple(sorted(books.uses, key=attrgetter("path", "resource"))),
    )
    return replace(snapshot, books=in_order)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_read_ahead_in_pieces_equals_what_a_start_reads_and_decides_the_same_from_then_on(
    journal: SqliteJournal, reader: SqliteReader, policy: str, seed: int
) -> None:
    lives, lots = Recorded(journal, policy, seed), Random(seed)
    snapshots = Snapshots(journal, lives.epoch, every_facts=25)
    follower = Follower(reader, lives.policy)
    for _ in range(50):
        lives.step()
        if lots.random() < 0.2:
            follower.catch_up()
        if lots.random() < 0.3:
            snapshots.follow(lives.scheduler)
        if lots.random() < 0.1:
            journal.compact(lots.randint(0, journal.last_fact()), lives.epoch)
    snapshots.wait()
    ahead, anew = follower.handed_over(journal), cold(journal, lives.policy)
    assert follower.seq == journal.last_fact()
    assert differences(ahead.ledger, anew.ledger, any_order=True) == []
    assert told(ahead) == told(anew)
    lives.twins += [("read ahead", ahead), ("read at a start", anew)]
    for _ in range(15):
        lives.step()


def test_of_a_journal_that_was_put_back_and_has_gone_on_otherwise_nothing_read_ahead_counts(
    tmp_path: Path, journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Recorded(journal, "quotas", seed=3)
    for _ in range(20):
        ours.step()
    for steps in (5, 40):
        another = SqliteJournal(tmp_path / f"put back {steps}")
        theirs = Recorded(another, "quotas", seed=4)
        for _ in range(steps):
            theirs.step()
        follower = Follower(journal, ours.policy)
        scheduler = follower.handed_over(another)
        assert differences(scheduler.ledger, theirs.scheduler.ledger, any_order=True) == []
        assert "is another than it was" in caplog.text
        caplog.clear()
        another.close()


def test_what_was_read_ahead_of_a_snapshot_alone_counts_no_more_either_once_that_was_put_back(
    tmp_path: Path, journal: SqliteJournal
) -> None:
    ours = Recorded(journal, "quotas", seed=3)
    for _ in range(20):
        ours.step()
    Snapshots(journal, ours.epoch, every_facts=1).close(ours.scheduler)
    follower = Follower(journal, ours.policy)
    assert follower.seq == journal.last_fact()
    another = SqliteJournal(tmp_path / "put back")
    theirs = Recorded(another, "quotas", seed=4)
    for _ in range(30):
        theirs.step()
    scheduler = follower.handed_over(another)
    assert differences(scheduler.ledger, theirs.scheduler.ledger, any_order=True) == []
    another.close()


# ----- a controller that goes on from it


def controller(
    journal: SqliteJournal, follower: Follower | None = None, policy: Policy | None = None
) -> Controller:
    epoch = journal.lead("test", 60.0)
    return Controller(
        journal, policy or Policy(), RecordingCluster, site=SITE, epoch=epoch, follower=follower
    )


def with_jobs(journal: SqliteJournal) -> Controller:
    """A leader with a policy on record and two jobs, one of which runs; a snapshot and then more facts."""
    leading = controller(journal)
    leading.recover()
    leading.adopt_policy(PolicyText("preset: fair\n", "p.yaml"))
    leading.submit([job("a", gpus=8)], None, {})
    leading.step()
    Snapshots(journal, leading.epoch, every_facts=1).close(leading.turn_runner.known)
    leading.submit([job("b", gpus=8)], None, {})
    leading.step()
    return leading


def test_whoever_takes_over_reads_only_what_is_new(
    journal: SqliteJournal, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = with_jobs(journal)
    follower = Follower(reader, Policy())
    read_to = follower.seq
    before.submit([job("c", gpus=8)], None, {})
    before.step()
    read: list[int] = []
    facts = journal.facts

    def counted(after: int = 0) -> Iterator[RecordedFact]:
        for recorded in facts(after):
            read.append(recorded.seq)
            yield recorded

    def no_snapshot() -> Snapshot | None:
        raise AssertionError("a snapshot is read")

    monkeypatch.setattr(journal, "facts", counted)
    monkeypatch.setattr(journal, "latest_snapshot", no_snapshot)
    after = controller(journal, follower)
    after.recover()
    assert read == list(range(read_to, before.ledger.applied + 1)), "one is read again to be sure"
    assert after.policy == before.policy != Policy()
    assert differences(after.ledger, before.ledger, any_order=True) == []
    after.submit([job("d", gpus=8)], None, {})
    after.step()
    assert "d" in after.ledger.jobs


def test_the_next_snapshot_is_due_as_after_a_start(
    journal: SqliteJournal, reader: SqliteReader
) -> None:
    with_jobs(journal)
    taking = Snapshots(journal, epoch=1)
    taking.go_on()
    again = Snapshots(journal, epoch=1)
    again.fold(Policy())
    assert vars(taking)["_taken_at"] == vars(again)["_taken_at"] > 0


def test_after_a_bug_in_what_was_read_ahead_the_journal_is_read_anew_and_that_is_said(
    journal: SqliteJournal,
    reader: SqliteReader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = with_jobs(journal)
    follower = Follower(reader, Policy())
    spoilt = follower.ledger
    before.submit([job("c", gpus=8)], None, {})
    before.step()
    apply = Ledger.apply

    def broken(ledger: Ledger, fact: Fact) -> None:
        assert ledger is not spoilt, "spoilt"
        apply(ledger, fact)

    monkeypatch.setattr(Ledger, "apply", broken)
    after = controller(journal, follower)
    assert "cannot be gone on from: the journal is read anew" in caplog.text
    assert after.ledger is not spoilt
    assert differences(after.ledger, before.ledger, any_order=True) == []


def test_what_was_read_ahead_under_another_policy_than_the_one_that_rules_is_not_gone_on_from(
    journal: SqliteJournal, reader: SqliteReader, caplog: pytest.LogCaptureFixture
) -> None:
    leading = controller(journal)
    leading.recover()
    follower = Follower(reader, Policy(half_life_s=5.0))
    after = controller(journal, follower)
    assert after.policy == Policy()
    assert "under another policy: the journal is read anew" in caplog.text


# ----- the thread


@pytest.fixture
def warm(tmp_path: Path, journal: SqliteJournal) -> Iterator[StandbyFold]:
    made = StandbyFold(lambda: SqliteReader(tmp_path / "state"), Policy())
    yield made
    made.close()


def test_it_keeps_up_and_is_handed_over_once(journal: SqliteJournal, warm: StandbyFold) -> None:
    assert (warm.is_ready, warm.hand_over()) == (False, None)
    leading = with_jobs(journal)
    warm.start()
    warm.start()
    until(lambda: warm.is_ready)
    leading.submit([job("c", gpus=8)], None, {})
    leading.step()
    first = warm.hand_over()
    assert first is not None
    assert first.handed_over(journal).ledger.jobs.keys() == leading.ledger.jobs.keys()
    assert (warm.is_ready, warm.hand_over()) == (False, None)
    warm.start()
    until(lambda: warm.is_ready)
    second = warm.hand_over()
    assert second is not None and second is not first


def test_it_reads_on_while_it_stands_by(
    journal: SqliteJournal, warm: StandbyFold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_fold, "FOLLOW_EVERY_S", 0.01)
    leading = with_jobs(journal)
    caught_up: list[int] = []
    catch_up = Follower.catch_up

    def counted(follower: Follower) -> None:
        catch_up(follower)
        caught_up.append(follower.seq)

    monkeypatch.setattr(Follower, "catch_up", counted)
    warm.start()
    until(lambda: warm.is_ready)
    leading.submit([job("c", gpus=8)], None, {})
    leading.step()
    until(lambda: caught_up[-1] == leading.ledger.applied)


def test_a_journal_that_cannot_be_read_is_tried_again_and_said_once(
    tmp_path: Path,
    journal: SqliteJournal,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(standby_fold, "FOLLOW_EVERY_S", 0.01)
    tried: list[bool] = []

    def opened() -> SqliteReader:
        tried.append(True)
        if len(tried) < 4:
            raise JournalError("out of reach")
        return SqliteReader(tmp_path / "state")

    with_jobs(journal)
    warm = StandbyFold(opened, Policy())
    warm.start()
    until(lambda: warm.is_ready)
    warm.close()
    assert caplog.text.count("trying again: out of reach") == 1


def test_after_a_bug_nothing_is_handed_over_and_that_is_said(
    journal: SqliteJournal,
    warm: StandbyFold,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(standby_fold, "FOLLOW_EVERY_S", 0.01)
    with_jobs(journal)
    warm.start()
    until(lambda: warm.is_ready)

    def broken(follower: Follower) -> None:
        raise AssertionError("spoilt")

    monkeypatch.setattr(Follower, "catch_up", broken)
    until(lambda: not warm.is_ready)
    assert warm.hand_over() is None
    assert "bug in what is read ahead" in caplog.text


def test_whoever_is_to_lead_does_not_wait_for_ever(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standby_fold, "PATIENCE_S", 0.05)
    waiting = [True]

    def opened() -> SqliteReader:
        until(lambda: not waiting)
        raise JournalError("too late")

    warm = StandbyFold(opened, Policy())
    with caplog.at_level(logging.ERROR):
        warm.start()
        assert warm.hand_over() is None
    assert "is not there after 0.05 s" in caplog.text
    waiting.clear()
