"""What the daemon lets go of, little by little: ended jobs, and facts that are too old."""

from dataclasses import replace
from pathlib import Path

import pytest

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.access.permissions import Need, job_for
from gantree.control.engine import retention
from gantree.control.engine.retention import Retention, RetentionLimits
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Scheduler
from gantree.journal.contract import Snapshot
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import grant_of
from gantree.model.errors import NotFound, Unreachable
from gantree.model.events import JobSubmitted, TimePassed
from gantree.model.facts import JobRejected
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.site_facts import NodeMarked
from gantree.testing.builders import job
from gantree.web.pages.jobs.job import forgotten_of

DAY = 86_400.0


def journal_of(place: Path, turns: int, facts_of_turn: int = 2) -> tuple[SqliteJournal, int]:
    """A turn a day, each of one event and so many facts; the last is in a snapshot."""
    journal = SqliteJournal(place)
    epoch = journal.lead("a test", 60.0)
    assert epoch is not None
    fact = NodeMarked(at=0.0, node="n0", usable=True, reason="")
    for turn in range(1, turns + 1):
        journal.append_inbox([TimePassed(id=f"t{turn}", observed_at=turn * DAY)], epoch)
        journal.commit_turn(turn, [fact] * facts_of_turn, (), epoch)
    end = journal.last_fact()
    journal.save_snapshot(Snapshot(seq=end, cursor=turns, turns=turns, text="all"), epoch)
    return journal, epoch


def test_the_facts_before_a_moment_are_found_by_halves(tmp_path: Path) -> None:
    journal, _ = journal_of(tmp_path, turns=9)
    assert journal.facts_before(0.0) == 0
    assert journal.facts_before(1.5 * DAY) == 2
    assert journal.facts_before(5.0 * DAY) == 8, "the event of that moment itself is not before it"
    assert journal.facts_before(100 * DAY) == 18
    journal.close()


def test_old_facts_go_in_pieces_and_no_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE", 5)
    journal, epoch = journal_of(tmp_path, turns=9)
    kept = Retention(journal, epoch, RetentionLimits(history_s=2 * DAY))
    gone = []
    for second in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0):
        kept.compact(9.5 * DAY + second)
        gone.append(journal.compacted_to())
    assert gone == [4, 4, 8, 12, 14, 14], "whole turns, a piece a second, until two days are left"
    journal.close()


def test_a_turn_that_is_larger_than_a_piece_goes_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE", 1)
    journal, epoch = journal_of(tmp_path, turns=3, facts_of_turn=6)
    kept = Retention(journal, epoch, RetentionLimits(history_s=DAY))
    for second in range(12):
        kept.compact(3.5 * DAY + second)
    assert journal.compacted_to() == 12
    journal.close()


def test_history_is_kept_where_nobody_asked_for_less(tmp_path: Path) -> None:
    journal, epoch = journal_of(tmp_path, turns=3)
    Retention(journal, epoch, RetentionLimits()).compact(1000 * DAY)
    assert journal.compacted_to() == 0
    journal.close()


def handed_in(job_id: str, spec: Job) -> JobSubmitted:
    return JobSubmitted(id=f"{job_id}/submitted", observed_at=DAY, job=job_id, spec=spec)


def test_a_forgotten_job_is_history_and_one_that_never_was_is_not(tmp_path: Path) -> None:
    journal, epoch = journal_of(tmp_path, turns=1)
    journal.append_inbox([handed_in("old", job("old")), handed_in("young", job("young"))], epoch)
    journal.commit_turn(2, (), (), epoch)
    view = ReadView(Ledger(forgotten=1), journal, ReadPoint(0, 0.0), Scheduler)
    with pytest.raises(NotFound, match="old ended long ago and is history"):
        view.resolve("old")
    with pytest.raises(Unreachable, match="young was taken, and is not decided about yet"):
        view.resolve("young")
    with pytest.raises(NotFound, match="there is no job new"):
        view.resolve("new")
    journal.close()


@pytest.mark.parametrize("forgotten", [0, 1])
def test_a_job_that_was_taken_and_no_turn_has_come_to_is_neither_missing_nor_history(
    tmp_path: Path, forgotten: int
) -> None:
    """As where the turn could not be written: its owner has a receipt, and must not hear that there is no such job."""
    journal, epoch = journal_of(tmp_path, turns=1)
    hers = replace(job("new"), queue="research", user="alice")
    journal.append_inbox([TimePassed(id=f"w{each}", observed_at=DAY) for each in range(600)], epoch)
    journal.append_inbox(
        [JobSubmitted(id="new/submitted", observed_at=DAY, job="new", spec=hers)], epoch
    )
    view = ReadView(Ledger(forgotten=forgotten), journal, ReadPoint(0, 0.0), Scheduler)
    with pytest.raises(Unreachable, match="new was taken, and is not decided about yet: ask again"):
        view.resolve("new")
    alice, bob = (Caller(name, (grant_of("user", "research"),), "tcp") for name in ("alice", "bob"))
    with pytest.raises(Unreachable, match="new was taken"):
        job_for(view, alice, "new", Need.SEE)
    with pytest.raises(NotFound, match="there is no job new"):
        job_for(view, bob, "new", Need.SEE)
    journal.close()


def test_where_no_job_was_forgotten_one_in_the_inbox_is_not_decided_about(tmp_path: Path) -> None:
    journal, epoch = journal_of(tmp_path, turns=1)
    journal.append_inbox([handed_in("young", job("young"))], epoch)
    view = ReadView(Ledger(), journal, ReadPoint(0, 0.0), Scheduler)
    for role, kind in (("viewer", Unreachable), ("user", NotFound)):
        with pytest.raises(kind, match="young"):
            job_for(view, Caller("bob", (grant_of(role),), "tcp"), "young", Need.SEE)
    journal.close()


def test_the_page_of_a_job_in_the_inbox_is_none_of_history(tmp_path: Path) -> None:
    journal, epoch = journal_of(tmp_path, turns=1)
    journal.append_inbox([handed_in("old", job("old")), handed_in("young", job("young"))], epoch)
    journal.commit_turn(2, (), (), epoch)
    view = ReadView(Ledger(forgotten=1), journal, ReadPoint(0, 0.0), Scheduler)
    boss = Caller("boss", EVERYTHING, "tcp")
    assert forgotten_of(view, "young", boss) is None
    assert forgotten_of(view, "old", boss) is not None
    journal.close()


def test_who_might_see_a_job_is_told_that_it_is_history_and_others_that_there_is_none(
    tmp_path: Path,
) -> None:
    journal, epoch = journal_of(tmp_path, turns=1)
    hers = replace(job("old"), queue="research", user="alice")
    journal.append_inbox([handed_in("old", hers)], epoch)
    journal.commit_turn(2, (), (), epoch)
    view = ReadView(Ledger(forgotten=1), journal, ReadPoint(0, 0.0), Scheduler)
    for name, told in (("alice", "old ended long ago and is history"), ("bob", "no job old")):
        caller = Caller(name, (grant_of("user", "research"),), "tcp")
        with pytest.raises(NotFound, match=told):
            job_for(view, caller, "old", Need.SEE)
    journal.close()


def test_jobs_are_to_be_forgotten_when_there_are_many_more_and_the_oldest_is_settled(
    tmp_path: Path,
) -> None:
    journal, epoch = journal_of(tmp_path, turns=1)
    kept, ledger = Retention(journal, epoch, RetentionLimits(ended=100)), Ledger()
    for number in range(106):
        state = JobState(f"j{number}", job("j"), 0, number, 0, 0.0)
        state.phase, state.ended_at = Phase.SUCCEEDED, float(number)
        ledger.ended.append(state)
    first = kept.due(ledger, 1000.0)
    assert first is not None and (first.keep, first.ended_before) == (100, 400.0)
    assert kept.due(ledger, 1000.5) is None, "once a second"
    again = kept.due(ledger, 1001.0)
    assert again is not None and again.id != first.id
    assert kept.due(ledger, 1002.0) is None, "nothing was forgotten: others come after all of them"
    assert kept.due(ledger, 1061.0) is not None
    assert Retention(journal, epoch, RetentionLimits(ended=100)).due(ledger, 500.0) is None, (
        "they ended just now"
    )
    del ledger.ended[105:]
    assert kept.due(ledger, 2000.0) is None, "five more than a hundred are not worth it"
    for number in range(106):
        ledger.apply(JobRejected(at=1500.0 + number, job=f"r{number}", reason="no such queue"))
    assert kept.due(ledger, 2099.0) is None, "they were rejected just now"
    told = kept.due(ledger, 2101.0)
    assert told is not None and (told.keep, told.ended_before) == (100, 1501.0)
    journal.close()
