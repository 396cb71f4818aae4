"""Searches of ended jobs find what a plain filter finds, on both databases."""

import random
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gantree.accounting.change import HistoryChange
from gantree.accounting.ended_jobs import EVERYTHING, EndedJob, JobSearch, Scope
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import is_within
from gantree.testing.journal_contract import ended, led
from support.examples import examples

QUEUES = ("q", "q/a", "q/a/deep", "q0", "Q", "qx", "q-")
USERS = ("ann", "bob", "Ann", "a_n")
NAMES = ("train", "train_1", "trainX1", "Train", "t%", "[a]")
OUTCOMES = ("succeeded", "failed", "cancelled", "timed-out")
JOBS = 60
RANDOM = random.Random(3)


def row(number: int) -> EndedJob:
    name = RANDOM.choice(NAMES)
    return EndedJob(
        job=f"{name}-{number}", name=name, queue=RANDOM.choice(QUEUES), user=RANDOM.choice(USERS), priority=200,
        outcome=RANDOM.choice(OUTCOMES), reason="", exit_code=None, last_failure="", submitted_at=1.0, started_at=None,
        ended_at=10.0 * (number // 2), attempts=1, failures=0, preemptions=0, members=1, processes=1, gpus=1,
        gpu_model="", nodes="n0", held_gpu_s=1.5, lost_gpu_s=0.0, waited_s=0.25,
    )  # fmt: skip


ROWS = [row(number) for number in range(JOBS)]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def journal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlJournal]:
    if request.param == "sqlite":
        opened: SqlJournal = SqliteJournal(tmp_path_factory.mktemp("history"))
        yield from filled(opened)
    else:
        with request.getfixturevalue("postgres").lent_database() as url:
            yield from filled(PostgresJournal(url))


def filled(journal: SqlJournal) -> Iterator[SqlJournal]:
    """Two jobs a turn, each at every third fact."""
    epoch = led(journal)
    for first in range(0, JOBS, 2):
        facts = [ended(number) for number in range(6)]
        change = HistoryChange(((2, ROWS[first]), (5, ROWS[first + 1])))
        journal.commit_turn(0, facts, [], epoch, change)
    yield journal
    journal.close()


def finds(search: JobSearch, job: EndedJob) -> bool:
    """The plain twin."""
    names = (job.name, job.job)
    return (
        (search.queue is None or is_within(job.queue, search.queue))
        and (search.user is None or job.user == search.user)
        and (search.name is None or any(matches(name, search.name) for name in names))
        and (search.exact_name is None or job.name == search.exact_name)
        and (not search.outcomes or job.outcome in search.outcomes)
        and (search.since is None or job.ended_at >= search.since)
        and (search.until is None or job.ended_at < search.until)
        and any(
            (not scope.queue or is_within(job.queue, scope.queue))
            and (scope.user is None or job.user == scope.user)
            for scope in search.scopes
        )
    )


def matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))


QUEUE = st.none() | st.sampled_from((*QUEUES, "q/", "nowhere", ""))
PATTERNS = ("train*", "*1", "t?ain", "train_*", "t%", "*%*", "[a]*", "train", "train_1-7", "*")
TIMES = st.none() | st.sampled_from((0.0, 55.0, 100.0, 290.0, 9e9))
SEARCHES = st.builds(
    JobSearch,
    queue=QUEUE.filter(lambda queue: queue != ""),
    user=st.none() | st.sampled_from(USERS),
    name=st.none() | st.sampled_from(PATTERNS),
    outcomes=st.frozensets(st.sampled_from(OUTCOMES), max_size=2),
    since=TIMES,
    until=TIMES,
    scopes=st.just(EVERYTHING)
    | st.lists(
        st.builds(Scope, st.sampled_from(("", "q", "q/a")), st.none() | st.sampled_from(USERS)),
        max_size=2,
    ).map(tuple),
    exact_name=st.none() | st.sampled_from(NAMES),
)


@example(search=JobSearch(name="train*"), size=9)
@example(search=JobSearch(name="t%*"), size=9)
@example(search=JobSearch(queue="q"), size=9)
@given(search=SEARCHES, size=st.integers(1, 9))
@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_search_finds_what_a_plain_filter_finds_page_by_page(
    journal: SqlJournal, search: JobSearch, size: int
) -> None:
    found: list[EndedJob] = []
    before = None
    while page := journal.history.ended_jobs(search, before, size):
        found += [each.ended for each in page]
        before = page[-1].seq
    assert found == [job for job in reversed(ROWS) if finds(search, job)]


def test_a_job_is_found_by_its_id_and_by_nothing_else(journal: SqlJournal) -> None:
    found = journal.history.ended_job(ROWS[7].job)
    assert found is not None
    assert (found.ended, found.seq) == (ROWS[7], 3 * 8)
    assert journal.history.ended_job("train") is None
    assert journal.history.ended_job("nobody\0\ud800") is None


def test_text_that_no_database_takes_is_written_all_the_same(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    odd = replace(ROWS[0], reason="a\0b\ud800")
    journal.commit_turn(0, [ended(1)], [], led(journal), HistoryChange(((0, odd),)))
    found = journal.history.ended_job(odd.job)
    assert found is not None
    assert found.ended.reason == "a?b?"
    journal.close()
