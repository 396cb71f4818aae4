"""A follower of a journal: whatever happens in it, the same ledger and the same answers as those who wrote it."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.views import queries
from gantree.control.garbage import set_all_apart
from gantree.control.readers.follower import Follower
from gantree.control.requests.read_view import ReadView
from gantree.control.snapshots import Snapshots
from gantree.core.scheduler import Scheduler
from gantree.journal.contract import RecordedFact
from gantree.journal.sqlite import SqliteJournal, SqliteReader
from gantree.model.errors import GantreeError
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from support.examples import examples
from support.random_lives import POLICIES
from support.recorded_lives import Recorded
from support.same_ledger import differences

ANYBODY = Caller("op", EVERYTHING, "socket")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    opened = SqliteJournal(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def reader(tmp_path: Path, journal: SqliteJournal) -> Iterator[SqliteReader]:
    opened = SqliteReader(tmp_path)
    yield opened
    opened.close()


def answers(view: ReadView) -> Iterator[tuple[str, Any]]:
    """What anybody could ask, with its answer."""
    yield "queues", queries.queues(view, ANYBODY)
    yield "cluster", queries.cluster(view, ANYBODY)
    yield "nodes", queries.nodes(view, ANYBODY)
    waiting = [s.job for s in view.ledger.jobs.values() if s.phase is Phase.PENDING][:2]
    changes = [(("topology.required", "leaf"),), (("priority", "serving"),)]
    asked: list[tuple[Any, ...]] = [
        (queries.what_if, ANYBODY, job, changes)
        for job in waiting[:1]  # as much as all else
    ]
    for job in waiting + list(view.ledger.jobs)[:1]:
        asked += [
            (queries.explained, ANYBODY, job),
            (queries.start, ANYBODY, job),
            (queries.moves, job),
        ]
    for question, *arguments in asked:
        told: Any
        try:
            told = question(view, *arguments)
        except GantreeError as error:
            told = f"{type(error).__name__}: {error}"
        yield f"{question.__name__} {arguments}", told


@pytest.mark.parametrize("policy", POLICIES)
def test_a_follower_of_random_lives_has_the_ledger_and_the_answers_of_those_who_decide(
    journal: SqliteJournal, reader: SqliteReader, policy: str
) -> None:
    lives = Recorded(journal, policy, seed=7)
    follower = Follower(reader, lives.policy)
    asked = 0
    for _ in range(examples(20, fewest=2)):
        for _ in range(12):
            lives.step()
        follower.catch_up()
        assert follower.seq == lives.scheduler.ledger.applied == journal.last_fact()
        assert differences(follower.ledger, lives.scheduler.ledger, any_order=True) == []
        ours, theirs = answers(lives.read_view()), answers(follower.read_view(lives.now))
        for (name, told), (_, expected) in zip(theirs, ours, strict=True):
            assert told == expected, name
            asked += 1
    assert asked > 12
    twin = Scheduler.of(follower.ledger, follower.now)
    lives.twins.append((f"follower under {policy}", twin))
    for _ in range(10):
        lives.step()


@pytest.mark.parametrize("policy", ["cells", "moves", "turns"])
def test_why_and_when_of_every_job_leave_the_ledger_as_one_that_nobody_asked(
    journal: SqliteJournal, reader: SqliteReader, tmp_path: Path, policy: str
) -> None:
    lives = Recorded(journal, policy, seed=2)
    asked, beside = Follower(reader, lives.policy), Follower(SqliteReader(tmp_path), lives.policy)
    for _ in range(5):
        for _ in range(8):
            lives.step()
        asked.catch_up()
        beside.catch_up()
        view = asked.read_view(lives.now)
        first = [ask(view, job) for job in view.ledger.jobs for ask in (why_of, when_of)]
        assert differences(asked.ledger, beside.ledger, any_order=True) == []
        again = beside.read_view(lives.now)
        assert [ask(again, job) for job in again.ledger.jobs for ask in (why_of, when_of)] == first
        beside.restart()
    beside.journal.close()
    lives.twins.append(("one that was asked", Scheduler.of(asked.ledger, asked.now)))
    for _ in range(6):
        lives.step()


def why_of(view: ReadView, job: str) -> Any:
    return queries.explained(view, ANYBODY, job)


def when_of(view: ReadView, job: str) -> Any:
    return queries.start(view, ANYBODY, job)


def test_a_follower_that_comes_late_begins_with_the_newest_snapshot(
    journal: SqliteJournal, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = Recorded(journal, "shares", seed=5)
    for _ in range(30):
        lives.step()
    Snapshots(journal, lives.epoch, every_facts=5).close(lives.scheduler)
    kept = journal.latest_snapshot()
    for _ in range(5):
        lives.step()
    read_from: list[int] = []
    facts = reader.facts

    def facts_after(after: int) -> Iterator[RecordedFact]:
        read_from.append(after)
        return facts(after)

    monkeypatch.setattr(reader, "facts", facts_after)
    follower = Follower(reader, lives.policy)
    assert kept is not None
    assert set(read_from) == {kept.seq - 1}, "its last fact is known again by, should it change"
    assert differences(follower.ledger, lives.scheduler.ledger, any_order=True) == []


def test_a_follower_goes_on_from_a_newer_snapshot_where_what_it_had_not_read_was_compacted(
    journal: SqliteJournal, reader: SqliteReader
) -> None:
    lives = Recorded(journal, "shares", seed=5)
    follower = Follower(reader, lives.policy)
    for _ in range(40):
        lives.step()
    Snapshots(journal, lives.epoch, every_facts=5).close(lives.scheduler)
    journal.compact(journal.last_fact(), lives.epoch)
    assert journal.compacted_to() > follower.seq
    for _ in range(5):
        lives.step()
    follower.catch_up()
    assert follower.seq == journal.last_fact()
    assert differences(follower.ledger, lives.scheduler.ledger, any_order=True) == []


def test_a_follower_that_begins_again_lets_the_collector_have_what_it_knew(
    journal: SqliteJournal,
) -> None:
    follower = Follower(journal, Policy())
    gc.unfreeze()  # what tests/conftest.py set apart
    set_all_apart()
    assert gc.get_freeze_count() > 0
    follower.restart()
    assert gc.get_freeze_count() == 0
