"""Ended jobs on record: one row each, with the turn that ends it; it outlives memory, facts and processes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.accounting.ended_jobs import EndedJob, JobSearch
from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.views import queries
from gantree.api.views.accounting import history_view
from gantree.control.engine.controller import Controller
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.history_tables import ended_jobs, history_mark
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import grant_of
from gantree.model.errors import JournalError, NotFound
from gantree.model.events import (
    CancelRequested,
    EndedJobsDue,
    GangEnded,
    GangStarted,
    GpuUseObserved,
)
from gantree.model.gpu_activity import MeasuredUse
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.web.pages.jobs.job import forgotten_of
from support.recording import RecordingCluster

Open = Callable[[], SqlJournal]
OPERATOR = Caller("op", EVERYTHING, "socket")


@pytest.fixture(params=["sqlite", "postgres"])
def open_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same journal again and again."""
    if request.param == "sqlite":
        return lambda: SqliteJournal(tmp_path)
    url = request.getfixturevalue("database_url")
    return lambda: PostgresJournal(url)


@pytest.fixture
def controller(open_journal: Open) -> Iterator[Controller]:
    started = started_on(open_journal())
    yield started
    started.close()


def started_on(journal: SqlJournal) -> Controller:
    """On two nodes of 8 GPUs, of which the test says what runs."""
    site = cluster(leaves=1, nodes=2)
    controller = Controller(journal, Policy(), RecordingCluster, site=site)
    controller.recover()
    return controller


def run_to_the_end(controller: Controller, name: str, exit_code: int = 0, user: str = "") -> None:
    """Submit a job of 8 GPUs that runs and ends."""
    end(controller, start(controller, name, user), exit_code)


def start(controller: Controller, name: str, user: str = "") -> dict[str, Any]:
    """What is said about the attempt of a job of 8 GPUs that runs."""
    (submitted,) = controller.submit([job(name, gpus=8)], None, {}, user).jobs
    controller.step()
    about: dict[str, Any] = {"job": submitted.job, "attempt": 1, "observed_at": controller.clock()}
    controller.inbox.enqueue(GangStarted(id=f"{submitted.job}/started", **about))
    controller.step()
    return about


def end(controller: Controller, about: dict[str, Any], exit_code: int = 0) -> None:
    """Let it end."""
    controller.inbox.enqueue(GangEnded(id=f"{about['job']}/ended", exit_code=exit_code, **about))
    controller.step()


def forget_all(controller: Controller) -> None:
    """Let the ledger forget all ended jobs."""
    now = controller.clock()
    due = EndedJobsDue(id="due", observed_at=now, keep=0, ended_before=now + 1)
    controller.inbox.append([due])
    controller.step()
    assert not controller.ledger.jobs


def rows(journal: SqlJournal) -> list[tuple[int, EndedJob]]:
    found = journal.history.ended_jobs(JobSearch(), None, 100)
    return [(each.seq, each.ended) for each in found]


def test_a_job_that_ends_is_on_record_with_what_it_used(controller: Controller) -> None:
    run_to_the_end(controller, "a", user="ann")
    run_to_the_end(controller, "b", exit_code=3)
    (_, b), (seq, a) = rows(controller.journal)  # type: ignore[arg-type]  # in SQL
    state = controller.ledger.jobs["a"]
    assert (a.job, a.user, a.queue, a.outcome) == ("a", "ann", state.spec.queue, "succeeded")
    assert (a.gpus, a.nodes, a.attempts, a.exit_code) == (8, "n0", 1, 0)
    assert a.held_gpu_s == pytest.approx(sum(held for _, held, _ in state.metered.spent))
    assert (a.submitted_at, a.started_at, a.ended_at) == (
        state.submitted_at, state.started_at, state.ended_at
    )  # fmt: skip
    assert (b.outcome, b.exit_code) == ("failed", 3)
    (fact,) = [each for each in controller.journal.facts(seq - 1) if each.seq == seq]
    assert type(fact.fact).__name__ == "JobEnded", "its place is that of the fact"


def test_elements_that_end_unsplit_are_one_row(controller: Controller) -> None:
    sweep = replace(job("sweep", gpus=8), array=((0, 99),))
    controller.submit([sweep], None, {}, "ann")
    controller.step()
    cancel = CancelRequested(id="c", observed_at=controller.clock(), job="sweep")
    controller.inbox.append([cancel])
    controller.step()
    row = next(each for _, each in rows(controller.journal) if "[" in each.job)  # type: ignore[arg-type]  # in SQL
    assert (row.job, row.name, row.outcome, row.attempts) == (
        "sweep[64-99]",
        "sweep",
        "cancelled",
        0,
    )
    assert (row.user, row.gpus, row.started_at, row.held_gpu_s) == ("ann", 8, None, 0.0)


def test_the_row_comes_with_the_turn_or_not_at_all(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = controller.journal
    commit = journal.commit_turn

    def broken(cursor: int, facts: object, orders: object, epoch: int, history: object) -> None:
        def fail(*_: object) -> None:
            raise JournalError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr("gantree.journal.sql.journal.write_history", fail)
            commit(cursor, facts, orders, epoch, history)  # type: ignore[arg-type]  # passed on

    run_to_the_end(controller, "a")
    about = start(controller, "b")
    with monkeypatch.context() as patched, pytest.raises(JournalError):
        patched.setattr(journal, "commit_turn", broken)
        end(controller, about)
    facts = [type(each.fact).__name__ for each in journal.facts()]
    assert facts.count("JobEnded") == len(rows(journal)) == 1  # type: ignore[arg-type]  # in SQL
    controller.step()
    facts = [type(each.fact).__name__ for each in journal.facts()]
    assert facts.count("JobEnded") == len(rows(journal)) == 2  # type: ignore[arg-type]  # in SQL


def test_a_forgotten_job_is_answered_from_its_row(controller: Controller) -> None:
    run_to_the_end(controller, "a", exit_code=3, user="ann")
    before = queries.detail(controller, OPERATOR, "a")
    why = queries.explained(controller.read_view(), OPERATOR, "a")
    forget_all(controller)
    after = queries.detail(controller, OPERATOR, "a")
    same = ("job", "name", "queue", "user", "phase", "priority", "gpus", "members", "attempt", "exit_code",
            "submitted_at", "started_at", "ended_at", "reason", "preemptions", "last_failure")  # fmt: skip
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert after["spec"] == before["spec"]
    assert after["placement"] is None
    assert queries.explained(controller.read_view(), OPERATOR, "a") == why


@pytest.mark.parametrize(
    ("name", "role", "queue", "sees"),
    [
        ("ann", "user", "", True),
        ("bob", "user", "", False),
        ("bob", "viewer", "", True),
        ("bob", "viewer", "other", False),
        ("ann", "user", "other", False),
    ],
)
def test_a_forgotten_job_is_shown_to_those_who_might_see_it_before(
    controller: Controller, name: str, role: str, queue: str, sees: bool
) -> None:
    run_to_the_end(controller, "a", user="ann")
    forget_all(controller)
    caller = Caller(name, (grant_of(role, queue),), "tcp")
    view = controller.read_view()
    found = history_view.ended_jobs(view, caller, JobSearch(), None, 10)
    assert [row["job"] for row in found["jobs"]] == (["a"] if sees else [])
    asks: list[Callable[[], dict[str, Any]]] = [
        lambda: queries.detail(view, caller, "a"),
        lambda: queries.explained(view, caller, "a"),
        lambda: history_view.ended_job(view, caller, "a"),
    ]
    for ask in asks:
        if sees:
            assert ask()["job"] == "a"
        else:
            with pytest.raises(NotFound):
                ask()


def test_what_is_missing_is_made_of_the_facts_at_the_next_start(open_journal: Open) -> None:
    first = started_on(open_journal())
    for name in "abc":
        run_to_the_end(first, name)
    recorded = rows(first.journal)  # type: ignore[arg-type]  # in SQL
    assert len(recorded) == 3
    forget_history(first.journal)  # type: ignore[arg-type]  # in SQL
    first.journal.resign(first.epoch)
    first.close()
    again = started_on(open_journal())
    assert rows(again.journal) == recorded  # type: ignore[arg-type]  # in SQL
    assert again.journal.history.rebuild_after() is None
    again.close()


def test_where_facts_were_compacted_the_jobs_of_the_snapshot_are_taken_over(
    open_journal: Open,
) -> None:
    first = started_on(open_journal())
    for name in "abc":
        run_to_the_end(first, name)
    first._snapshots._begin(first.turn_runner.scheduler)
    first._snapshots._keep()
    first.journal.compact(first.journal.last_fact(), first.epoch)
    run_to_the_end(first, "d")
    recorded = rows(first.journal)  # type: ignore[arg-type]  # in SQL
    forget_history(first.journal)  # type: ignore[arg-type]  # in SQL
    first.journal.resign(first.epoch)
    first.close()
    again = started_on(open_journal())
    found = rows(again.journal)  # type: ignore[arg-type]  # in SQL
    assert [ended for _, ended in found] == [ended for _, ended in recorded]
    again.close()


def forget_history(journal: SqlJournal) -> None:
    """As a journal of an older version is after its migration."""
    with journal.database.writing() as connection:
        connection.execute(ended_jobs.delete())
        connection.execute(history_mark.update().values(rebuild_after=0))


def test_a_turn_that_ends_nothing_adds_nothing() -> None:
    assert HistoryChange() == NO_CHANGE


def test_the_page_of_a_forgotten_job_says_how_it_ended(controller: Controller) -> None:
    run_to_the_end(controller, "a", exit_code=3, user="ann")
    forget_all(controller)
    view = controller.read_view()
    about = forgotten_of(view, "a", OPERATOR)
    assert about is not None
    assert (about["ended"]["outcome"], about["ended"]["exit_code"], about["user"]) == (
        "failed",
        3,
        "ann",
    )
    stranger = Caller("bob", (grant_of("user"),), "tcp")
    assert forgotten_of(view, "a", stranger) is None


def test_what_counters_told_of_a_job_after_its_end_is_in_its_row(controller: Controller) -> None:
    """Of a gang that is gone the next look reports, so of a short job all that is known comes late."""
    about = start(controller, "a")
    end(controller, about)
    (_, before) = rows(controller.journal)[0]  # type: ignore[arg-type]  # in SQL
    ((began, until),) = controller.ledger.jobs["a"].metered.measured_attempt.runs
    used = MeasuredUse("a", 1, (until - began) * 6, (until - began) * 2)
    now = controller.clock()
    told = GpuUseObserved(id="told", observed_at=now, since=began, until=until, gangs=(used,))
    controller.inbox.enqueue(told)
    controller.step()
    (_, row) = rows(controller.journal)[0]  # type: ignore[arg-type]  # in SQL
    assert (row.useful_gpu_s, row.idle_gpu_s) == pytest.approx((used.useful_gpu_s, used.idle_gpu_s))
    assert replace(row, useful_gpu_s=0.0, idle_gpu_s=0.0) == before
