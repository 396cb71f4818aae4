"""Lists on the page of the fleet: running jobs that are idle, and what this month cost; each for whom it is shown."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gantree.accounting.usage import CountedTo
from gantree.api.access.access import EVERYTHING, Caller
from gantree.control.history.recorder import HistoryRecorder
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.journal.sqlite import SqliteJournal
from gantree.model.access import grant_of
from gantree.model.events import CancelRequested, GangIdlenessObserved
from gantree.policy.idle import IdleRule
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.journal_contract import ended, led
from gantree.testing.stage import Stage
from gantree.topology.hardware.prices import PriceList, Quote
from gantree.web.pages.fleet.idle_jobs import idle_jobs
from gantree.web.pages.fleet.this_month import this_month

HOUR_S = 3600.0
FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
ALL = Caller("op", EVERYTHING, "tcp")
ANN = Caller("ann", (grant_of("user"),), "tcp")
VIEWER = Caller("eve", (grant_of("viewer", "x"),), "tcp")
TWO_USD = PriceList([Quote("H100-80GB", "on_demand", 2.0, "", "")])


@pytest.fixture
def stage() -> Stage:
    """Three nodes, an hour before February."""
    stage = Stage(cluster(leaves=1, nodes=3), Policy(idle=IdleRule()))
    stage.now = FEBRUARY - HOUR_S
    return stage


@pytest.fixture
def view(stage: Stage, tmp_path: Path) -> Iterator[ReadView]:
    """Jobs a, b and c have held a node each for two hours."""
    ledger, journal = stage.scheduler.ledger, SqliteJournal(tmp_path)
    recorder = HistoryRecorder(ledger, stage.now, CountedTo())
    for name, user, queue in (("a", "ann", "x"), ("b", "bob", "x/y"), ("c", "ann", "z")):
        stage.submit(replace(job(name, gpus=8), user=user, queue=queue))
        stage.started(name)
    for index, fact in enumerate(stage.facts):
        recorder.note(index, fact, ledger)
    journal.commit_turn(0, [ended(1)], [], led(journal), recorder.taken())
    stage.now += 2 * HOUR_S
    yield ReadView(ledger, journal, ReadPoint(1, stage.now), lambda policy: stage.scheduler)
    journal.close()


def test_a_month_costs_what_was_held_since_its_first_day_at_the_given_prices(
    view: ReadView,
) -> None:
    found = this_month(view, ALL, TWO_USD)
    assert found["month"] == "February 2026"
    assert [(row["name"], row["USD"]) for row in found["rows"]] == [
        ("x", 16.0), ("x/y", 16.0), ("z", 16.0),
    ]  # fmt: skip
    assert found["USD"] == 48.0
    assert this_month(view, ANN, TWO_USD)["USD"] == 32.0
    assert {row["name"] for row in this_month(view, VIEWER, TWO_USD)["rows"]} == {"x", "x/y"}


def test_idle_jobs_are_those_that_run_the_longest_idle_first(stage: Stage, view: ReadView) -> None:
    for name, minutes in (("a", 30), ("b", 50), ("c", 40)):
        since = view.now - minutes * 60.0
        stage.tell(GangIdlenessObserved, job=name, attempt=1, since=since)
    assert [row["job"] for row in idle_jobs(view, ALL)] == ["b", "c", "a"]
    assert [(row["job"], row["may_change"]) for row in idle_jobs(view, ANN)] == [
        ("c", True), ("a", True),
    ]  # fmt: skip
    assert [(row["job"], row["may_change"]) for row in idle_jobs(view, VIEWER)] == [
        ("b", False), ("a", False),
    ]  # fmt: skip
    stage.tell(GangIdlenessObserved, job="c", attempt=1, since=None, reason="it computes")
    stage.tell(CancelRequested, job="b")
    assert [row["job"] for row in idle_jobs(view, ALL)] == ["a"]
