"""What pages keep, or do not look at, is never missed: each answer against one made from nothing, over random lives."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from operator import attrgetter
from pathlib import Path

import pytest

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.access.permissions import job_visibility, sees
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import how_many_ahead, in_order
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import grant_of
from gantree.model.events import HoldRequested, JobSubmitted
from gantree.model.phases import HOLDING, Phase
from gantree.web.pages.jobs import rows
from gantree.web.pages.jobs.rows import JobQuery, Which, job_rows
from gantree.web.pages.timeline.rows import JobTimelines, Json, fact_row, facts_of_job, latest
from gantree.web.pages.timeline.sentences import job_of_fact
from support.random_lives import a_job
from support.recorded_lives import Recorded

CALLERS = (
    Caller("op", EVERYTHING, "socket"),
    Caller("ann", (grant_of("user"),), "tcp"),
    Caller("vera", (grant_of("viewer", "a"),), "tcp"),
)
LISTS: tuple[Which, ...] = ("waiting", "running", "ended", "all")
FINDS = ("", "J1", "-0")
"""Parts of names; those of random lives are like j12-0."""
A_PAGE = 4


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    opened = SqliteJournal(tmp_path)
    yield opened
    opened.close()


def plain_list(view: ReadView, query: JobQuery, caller: Caller) -> list[str]:
    """The jobs of a list, found by looking at every job."""
    states = list(view.ledger.jobs.values())
    listed: dict[Which, list[JobState]] = {
        "waiting": [state for state in states if state.phase is Phase.PENDING],
        "running": [state for state in states if state.phase in HOLDING],
        "ended": list(reversed(view.ledger.ended)),
        "all": sorted(states, key=attrgetter("seq"), reverse=True),
    }
    return [
        state.job
        for state in listed[query.which]
        if query.find.lower() in state.job.lower()
        and query.queue in (None, state.spec.queue)
        and sees(caller, state)
    ]


@pytest.mark.parametrize("policy", ["shares", "in turn", "by order"])
def test_lists_and_counts_of_random_lives_are_those_of_a_look_at_every_job(
    journal: SqliteJournal, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PER_PAGE", A_PAGE)
    lives = Recorded(journal, policy, seed=3)
    waited = 0
    for _ in range(10):
        lives.submit()
        lives.step()
        view = lives.read_view()
        for caller in CALLERS:
            for which, find, page in product(LISTS, FINDS, (1, 2)):
                query = JobQuery(which, find=find, page=page)
                expected = plain_list(view, query, caller)
                told = job_rows(view, query, caller)
                assert told["found"] == len(expected)
                on_page = expected[(page - 1) * A_PAGE : page * A_PAGE]
                assert [row["job"] for row in told["rows"]] == on_page
        order = [position.job for _, position in in_order(view.ledger, lives.now)]
        for place, job in enumerate(order):
            assert how_many_ahead(view.ledger, view.ledger.jobs[job], lives.now) == place
        waited += len(order)
    assert waited > 30


def test_the_latest_decisions_are_those_of_a_look_at_all_as_far_as_is_looked_back(
    journal: SqliteJournal,
) -> None:
    lives = Recorded(journal, "quotas", seed=4)
    hidden = 0
    for _ in range(12):
        for _ in range(3):
            lives.step()
        view = lives.read_view()
        for caller in CALLERS:
            for most in (1, 3, 8):
                told = [row["seq"] for row in latest(view, most, caller)]
                every = plain_latest(view, caller, 16 * most)
                assert told == every[:most]
                hidden += journal.last_fact() not in every
    assert hidden > 8, "somebody has to be told less"


def plain_latest(view: ReadView, caller: Caller, looked_at: int) -> list[int]:
    """The numbers of the facts among the latest that a caller may know of, newest first."""

    def is_known(job: str | None) -> bool:
        state = view.ledger.jobs.get(job or "")
        return caller.sees_all or (state is not None and sees(caller, state))

    every = list(view.journal.facts(0))[-looked_at:]
    return [each.seq for each in reversed(every) if is_known(job_of_fact(each.fact))]


@pytest.mark.parametrize("policy", ["shares", "moves"])
def test_the_facts_of_each_job_are_found_without_a_look_at_those_from_before_it(
    journal: SqliteJournal, policy: str
) -> None:
    lives = Recorded(journal, policy, seed=8)
    for _ in range(60):
        lives.step()
    view, every = lives.read_view(), list(journal.facts(0))
    for job in view.ledger.jobs:
        about = [each.seq for each in every if getattr(each.fact, "job", None) == job]
        rows, to = facts_of_job(view, job, 0)
        assert ([row["seq"] for row in rows], to) == (about, len(every))
        middle = about[len(about) // 2]
        later, _ = facts_of_job(view, job, middle)
        assert [row["seq"] for row in later] == [seq for seq in about if seq > middle]


def test_who_sees_a_job_is_the_same_for_many_as_for_one(journal: SqliteJournal) -> None:
    lives = Recorded(journal, "as it comes", seed=5)
    for _ in range(40):
        lives.step()
    states = list(lives.scheduler.ledger.jobs.values())
    told = []
    for caller in CALLERS:
        seen = job_visibility(caller)
        told.append([state.job for state in states if seen is None or seen(state)])
        assert told[-1] == [state.job for state in states if sees(caller, state)]
    assert len(told[0]) > len(told[2]) > 0


def test_a_long_search_for_one_job_keeps_nobody_waiting_who_looks_at_another(
    journal: SqliteJournal,
) -> None:
    asyncio.run(search_twice(journal))


async def search_twice(journal: SqliteJournal) -> None:
    lives = Recorded(journal, "as it comes", seed=6)
    lives.submit()
    (first, *_) = journal.facts(0)
    found, asked = asyncio.Event(), []

    async def search(job: str, after: int) -> tuple[list[Json], int]:
        asked.append((job, after))
        if job == "long":
            await found.wait()
        return [fact_row(first)], first.seq

    histories = JobTimelines(search)
    waiting = [asyncio.create_task(histories.of("long")) for _ in range(2)]
    await asyncio.sleep(0)
    assert len(await asyncio.wait_for(histories.of("short"), 60)) == 1
    found.set()
    assert [len(each) for each in await asyncio.gather(*waiting)] == [1, 2]
    assert asked == [("long", 0), ("short", 0), ("long", first.seq)], "nothing is read twice"


def test_the_facts_of_an_array_are_those_that_name_it(journal: SqliteJournal) -> None:
    lives = Recorded(journal, "as it comes", seed=3)
    spec = replace(a_job(lives.lots, "sweep", [], guesses=False), array=((0, 300),))
    lives.handle([JobSubmitted(id="s", observed_at=lives.now, job="sweep", spec=spec)])
    lives.tell(HoldRequested, job="sweep")
    rows, _ = facts_of_job(lives.read_view(), "sweep", 0)
    assert [row["kind"] for row in rows] == ["ArrayAccepted", "ArrayHeld"]
