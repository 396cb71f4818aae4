"""The watch of stragglers: what is logged and counted from one round to the next."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gantree.api.server.straggler_watch import Named, one_round
from gantree.api.views.straggler_view import FRESH_S, StragglerJudge
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.metrics.metrics import Metrics
from gantree.control.nodes.slow_rank_reports import SlowRankReports
from gantree.executors.progress import RankSteps, StepReports
from gantree.model.events import RankSlownessObserved


class Thread:
    """Runs at once what is to run on the controller's thread."""

    async def call(self, work: Callable[[], Any]) -> Any:
        return work()


class Gangs:
    """A cluster of gangs of four ranks; slow says which rank of a gang is slow, None: the gang reports nothing."""

    def __init__(self) -> None:
        self.slow: dict[str, int | None] = {"a": 2, "b": None}

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        slow = self.slow[job]
        if slow is None:
            return None
        ranks = tuple(
            RankSteps(
                rank, "w", "n0", (rank,), dict.fromkeys(range(20), 1.5 if rank == slow else 1.0)
            )
            for rank in range(4)
        )
        return StepReports(1.0, 4, ranks)

    def progress(self, job: str, attempt: int) -> None:
        """It reports no step times."""


def test_each_is_logged_once_when_named_and_when_no_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, gangs, metrics = 0.0, Gangs(), Metrics()
    reported: list[RankSlownessObserved] = []
    holding = {job: SimpleNamespace(job=job, attempt=3) for job in ("a", "b")}
    controller = cast(
        "Controller",
        SimpleNamespace(
            ledger=SimpleNamespace(holding=holding, slowed={}),
            cluster=gangs,
            metrics=metrics,
            clock=lambda: now,
            epoch=1,
            inbox=SimpleNamespace(enqueue=reported.append),
        ),
    )
    judge, known = StragglerJudge(lambda: now), cast("Named", {})
    reports = SlowRankReports()
    counted = []
    caplog.set_level(logging.INFO, logger="gantree.api.server.straggler_watch")
    for slow in (2, 2, 1, -1):
        gangs.slow["a"] = slow
        known = asyncio.run(one_round(cast("Loop", Thread()), controller, judge, known, reports))
        counted.append(metrics.registry.get_sample_value("gantree_stragglers", {"sign": "slow"}))
        now += FRESH_S
    assert counted == [1.0, 1.0, 1.0, 0.0]
    assert reported == [], "nobody was slow for long enough"
    gangs.slow["a"] = 2
    for _ in range(4):
        known = asyncio.run(one_round(cast("Loop", Thread()), controller, judge, known, reports))
        now += FRESH_S
    (event,) = reported
    assert (event.job, event.attempt, event.rank, event.node) == ("a", 3, 2, "n0")
    assert event.slowdown == pytest.approx(1.5)
    caplog.records.pop()
    told = [record.getMessage().partition(" on n0")[0] for record in caplog.records]
    assert told == [
        "job a attempt 3: rank 2",
        "job a attempt 3: rank 1",
        "job a attempt 3: rank 2 is no longer named (slow)",
        "job a attempt 3: rank 1 is no longer named (slow)",
    ]
