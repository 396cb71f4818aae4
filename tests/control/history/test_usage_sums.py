"""Sums of the roll-ups: by whatever they are asked for, and the same from either table."""

from collections import defaultdict
from itertools import product
from math import isclose
from pathlib import Path
from typing import Any

import pytest

from gantree.accounting.buckets import DAY_S, HOUR_S
from gantree.accounting.ended_jobs import EVERYTHING, Scope
from gantree.accounting.steps import STEPS, begin_of
from gantree.accounting.usage import UsageQuery
from gantree.journal.sql import usage_history as usage_history_rows
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.usage_history import HELD
from gantree.journal.sql.usage_sums import USAGE
from gantree.journal.sqlite import SqliteJournal
from support.history_lives import BEGAN, HistoryLives


def test_sums_are_asked_by_queue_user_and_model(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, "shares", 2)
    lives.live(100)
    end = int(lives.now // DAY_S + 1) * DAY_S
    whole = journal.history.usage(UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S))
    for by in ("queue", "user", "model"):
        parts = journal.history.usage(UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S, by))
        for name in ("allocated_gpu_s", "used_gpu_s", "submitted", "started"):
            total = sum(getattr(amounts, name) for _, _, amounts in whole)
            assert sum(getattr(each, name) for _, _, each in parts) == pytest.approx(total)
    below = journal.history.usage(
        UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S, "queue", queue="a")
    )
    assert {name for _, name, _ in below} <= {"a", "a/c", "a/d"}
    assert below
    journal.close()


def test_sums_are_the_same_from_the_rows_and_from_what_is_summed_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, "shares", 4)
    for gap_s in (40 * DAY_S, 2 * DAY_S, HOUR_S):
        lives.live(20)
        lives.now += gap_s
    lives.live(10)
    end = int(lives.now // DAY_S + 1) * DAY_S
    everybody = [(None, EVERYTHING)]
    some_of_them = product((None, "a"), (EVERYTHING, (Scope("a"),), (Scope("a/c"), Scope("b")), ()))
    of_step = dict.fromkeys(STEPS.values(), everybody) | {HOUR_S: list(some_of_them)}
    queries = [
        UsageQuery(since, begin_of(end, step) + step, step, by, queue, scopes=some)
        for step, scopes in of_step.items()
        for since in (begin_of(BEGAN, max(step, DAY_S)), begin_of(lives.now - 3 * HOUR_S, step))
        for by in ("all", "queue", "model", "project", "device")
        for queue, some in scopes
    ]
    told = [usage_by_step(journal, query) for query in queries]
    days = [
        UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S, by)
        for by in ("queue", "user", "model", "project", "device")
    ]
    totals = [totals_of(journal, query) for query in days]
    monkeypatch.setattr(usage_history_rows, "has_steps", lambda query: False)
    monkeypatch.setattr(usage_history_rows, "has_totals", lambda query: False)
    for query, each in zip(days, totals, strict=True):
        walked = totals_of(journal, query)
        assert any(walked.values())
        for at in {*each, *walked}:
            assert isclose(each.get(at, 0.0), walked.get(at, 0.0), rel_tol=1e-6, abs_tol=1e-3), at
    for query, each in zip(queries, told, strict=True):
        walked = usage_by_step(journal, query)
        assert each.keys() == walked.keys(), query
        assert all(isclose(each[at], walked[at], rel_tol=1e-6, abs_tol=1e-3) for at in each), query
    journal.close()


def totals_of(journal: SqlJournal, query: UsageQuery) -> dict[tuple[Any, ...], float]:
    """What is held in whole days, by name, model, device and purpose."""
    return {
        (*name, figure): getattr(amounts, figure)
        for *name, amounts in journal.history.totals(query)
        for figure in HELD
        if getattr(amounts, figure)
    }


def usage_by_step(journal: SqlJournal, query: UsageQuery) -> dict[tuple[Any, ...], float]:
    """What a query finds."""
    found: dict[tuple[Any, ...], float] = defaultdict(float)
    for bucket, name, amounts in journal.history.usage(query):
        for figure in USAGE:
            found[bucket, name, figure] += getattr(amounts, figure)
    return found
