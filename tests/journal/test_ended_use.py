"""What ended jobs used, added up in SQL: of a period, of those that a caller may see, the largest first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.accounting.change import HistoryChange
from gantree.accounting.ended_jobs import EVERYTHING, EndedJob, Scope
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.testing.journal_contract import ended as fact_of
from gantree.testing.journal_contract import led


def ended(job: str, submitted_at: float, ended_at: float, held_gpu_s: float, waited_s: float = 0.0,
          user: str = "ann", queue: str = "x", gpu_model: str = "H100-80GB") -> EndedJob:  # fmt: skip
    return EndedJob(
        job=job, name=job, queue=queue, user=user, priority=0, outcome="succeeded", reason="", exit_code=0,
        last_failure="", submitted_at=submitted_at, started_at=submitted_at, ended_at=ended_at, attempts=1, failures=0,
        preemptions=0, members=1, processes=1, gpus=1, gpu_model=gpu_model, nodes="n0", held_gpu_s=held_gpu_s,
        lost_gpu_s=held_gpu_s / 4, waited_s=waited_s, useful_gpu_s=held_gpu_s / 2,
    )  # fmt: skip


JOBS = (
    ended("before", 0.0, 90.0, 1.0),
    ended("into", 0.0, 100.0, 8.0),
    ended("within", 110.0, 120.0, 4.0, user="bob", queue="x/y"),
    ended("nothing", 110.0, 120.0, 0.0),
    ended("waited", 110.0, 130.0, 0.0, waited_s=9.0, gpu_model=""),
    ended("out of", 199.0, 300.0, 4.0, queue="z", gpu_model="T4-16GB"),
    ended("after", 200.0, 300.0, 1.0),
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    journal = SqliteJournal(tmp_path)
    facts = [fact_of(number + 1) for number in range(len(JOBS))]
    journal.commit_turn(0, facts, [], led(journal), HistoryChange(tuple(enumerate(JOBS))))
    yield journal
    journal.close()


def test_jobs_are_those_that_were_there_in_a_period_and_used_anything(journal: SqlJournal) -> None:
    found = journal.history.ended_use(100.0, 200.0, EVERYTHING, 100)
    assert [job.job for job in found.largest] == ["into", "within", "out of", "waited"]
    held = {model: amounts.allocated_gpu_s for model, amounts in found.of_model.items()}
    assert (found.jobs, held) == (4, {"H100-80GB": 12.0, "T4-16GB": 4.0, "": 0.0})
    of_h100 = found.of_model["H100-80GB"]
    assert (of_h100.useful_gpu_s, of_h100.idle_gpu_s, of_h100.lost_gpu_s) == (6.0, 0.0, 3.0)
    assert found.of_model[""].waited_s == 9.0


def test_jobs_beyond_the_limit_are_in_the_sums(journal: SqlJournal) -> None:
    found = journal.history.ended_use(100.0, 200.0, EVERYTHING, 1)
    assert [job.job for job in found.largest] == ["into"]
    assert (found.jobs, found.of_model["T4-16GB"].allocated_gpu_s) == (4, 4.0)


@pytest.mark.parametrize(
    ("scopes", "jobs"),
    [
        ((Scope("x"),), ["into", "within", "waited"]),
        ((Scope("x/y"), Scope("z")), ["within", "out of"]),
        ((Scope("", "ann"),), ["into", "out of", "waited"]),
        ((Scope("x", "bob"),), ["within"]),
        ((), []),
    ],
)
def test_jobs_are_those_that_a_caller_may_see(
    journal: SqlJournal, scopes: tuple[Scope, ...], jobs: list[str]
) -> None:
    found = journal.history.ended_use(100.0, 200.0, scopes, 100)
    assert ([job.job for job in found.largest], found.jobs) == (jobs, len(jobs))
