"""Times behind a jump of the clock move back, on both databases; what cannot be corrected is refused in words."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.journal.clock_correction import Corrected, clock_jump, correct_clock
from gantree.journal.contract import Snapshot
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.journal.verify import verify
from gantree.model.errors import Conflict
from gantree.model.events import TimePassed
from gantree.model.facts import JobRequeued
from gantree.model.phases import StopCause
from gantree.policy.rules import Policy

MOMENTS = (100.0, 200.0, 90_000.0, 90_100.0)
"""When the events came; the third is behind the jump."""
JUMP_S = 89_800.0
NOTHING = SnapshotCodec().encode(snapshot_of(Scheduler(Policy())))


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    """Four events, each in a turn of its own, with a fact that looks ten seconds ahead."""
    if request.param == "sqlite":
        opened: SqlJournal = SqliteJournal(tmp_path)
    else:
        opened = PostgresJournal(request.getfixturevalue("database_url"))
    epoch = opened.lead("test", 60.0)
    assert epoch is not None
    for number, moment in enumerate(MOMENTS, 1):
        opened.append_inbox([TimePassed(id=f"e{number}", observed_at=moment)], epoch)
        fact = JobRequeued(
            at=moment, job="j", cause=StopCause.RANK_FAILED, not_before=moment + 10, failures=1
        )
        opened.commit_turn(number, [fact], [], epoch)
        if number % 2 == 0:
            opened.save_snapshot(Snapshot(number, number, number, NOTHING), epoch)
    yield opened
    opened.close()


def times(journal: SqlJournal) -> list[tuple[float, float]]:
    """Of all facts, when each was decided and what it looks ahead to."""
    return [(each.fact.at, each.fact.not_before) for each in journal.facts_of(JobRequeued)]  # type: ignore[attr-defined]  # that kind


def test_all_behind_the_jump_moves_back_and_what_is_before_stays(journal: SqlJournal) -> None:
    done = correct_clock(journal, clock_jump(journal, now=1000.0))
    assert done == Corrected(JUMP_S, events=2, facts=2, orders=0)
    assert times(journal) == [(100, 110), (200, 210), (200, 210), (300, 310)]
    assert [each.event.observed_at for each in journal.read_inbox(0, 10)] == [100, 200, 200, 300]
    snapshot = journal.latest_snapshot()
    assert snapshot is not None
    assert snapshot.cursor == 2
    assert verify(journal).faults == []


@pytest.mark.parametrize(("now", "told"), [(91_000.0, "not ahead"), (-9e9, "not one jump")])
def test_a_journal_without_such_a_jump_is_left_alone(
    journal: SqlJournal, now: float, told: str
) -> None:
    with pytest.raises(Conflict, match=told):
        clock_jump(journal, now)


def test_a_journal_that_was_compacted_behind_the_jump_is_left_alone(journal: SqlJournal) -> None:
    jump = clock_jump(journal, now=1000.0)
    epoch = journal.lead("test", 60.0) or journal.leader()[0]
    journal.compact(4, epoch)
    with pytest.raises(Conflict, match="compacted"):
        correct_clock(journal, jump)
    assert journal.last_observed_at() == MOMENTS[-1]
    assert journal.latest_snapshot() is not None
