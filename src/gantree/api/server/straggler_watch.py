"""Counts stragglers for the metrics, logs each once and reports those that last, while a daemon leads.

Nobody waits for it. Only gangs that hold a place are looked at, and of one that reports no own times only that its file
is not there.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gantree.api.views.straggler_view import StragglerJudge
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.nodes.slow_rank_reports import SlowRankReports, SlowRankSeen, slowdown
from gantree.telemetry.stragglers import SIGNS, SLOW

EVERY_S = 15.0

Gang = tuple[str, int]
"""A job and its attempt."""
Named = dict[tuple[str, int, int, str], str]
"""Sentences by job, attempt, rank and sign."""
log = logging.getLogger(__name__)


async def watch_stragglers(loop: Loop, controller: Controller) -> None:
    """Look at all gangs again and again until cancelled."""
    judge, reports = StragglerJudge(clocks=controller.gpu_clocks), SlowRankReports()
    known: Named = {}
    while True:
        try:
            known = await one_round(loop, controller, judge, known, reports)
        except Exception:  # an observation ends no daemon
            log.exception("stragglers are not known")
        await asyncio.sleep(EVERY_S)


async def one_round(
    loop: Loop,
    controller: Controller,
    judge: StragglerJudge,
    known: Named,
    reports: SlowRankReports,
) -> Named:
    """Look at all gangs once, log who was not known, report slow ranks that last, and return who is named now."""
    gangs = await loop.call(lambda: _gangs(controller))
    named = await asyncio.to_thread(_named, judge, controller, gangs)
    slow = await asyncio.to_thread(_slow, judge, controller, gangs)
    await loop.call(lambda: _report(controller, reports, slow))
    for key in named.keys() - known.keys():
        log.warning("job %s attempt %d: %s", key[0], key[1], named[key])
    for key in known.keys() - named.keys():
        log.info("job %s attempt %d: rank %d is no longer named (%s)", *key)
    count_of_sign = Counter(sign for *_, sign in named)
    for sign in SIGNS:
        controller.metrics.stragglers.labels(sign).set(count_of_sign[sign])
    return named


def _gangs(controller: Controller) -> list[Gang]:
    return [(each.job, each.attempt) for each in controller.ledger.holding.values()]


def _named(judge: StragglerJudge, controller: Controller, gangs: Sequence[Gang]) -> Named:
    rows: list[tuple[Gang, dict[str, Any]]] = [
        (gang, row) for gang in gangs for row in judge.rows(controller.cluster, *gang)
    ]
    return {(*gang, row["rank"], row["sign"]): row["sentence"] for gang, row in rows}


def _slow(
    judge: StragglerJudge, controller: Controller, gangs: Sequence[Gang]
) -> list[SlowRankSeen]:
    return [
        _seen(judge, controller, gang, row)
        for gang in gangs
        for row in judge.rows(controller.cluster, *gang)
        if row["sign"] == SLOW
    ]


def _seen(
    judge: StragglerJudge, controller: Controller, gang: Gang, row: dict[str, Any]
) -> SlowRankSeen:
    progress = controller.cluster.progress(*gang)
    step_s = None if progress is None else progress.step_s
    own_s = judge.own_s(controller.cluster, *gang).get(row["rank"], 0.0)
    factor = slowdown(own_s, row["ratio"], step_s) if own_s > 0 else row["ratio"]
    return SlowRankSeen(*gang, row["rank"], row["node"], round(factor, 3))


def _report(controller: Controller, reports: SlowRankReports, slow: Sequence[SlowRankSeen]) -> None:
    now, epoch = controller.clock(), controller.epoch
    for event in reports.events(slow, controller.ledger, now, epoch):
        controller.inbox.enqueue(event)
