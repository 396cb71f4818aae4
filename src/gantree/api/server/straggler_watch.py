"""Counts stragglers for the metrics and logs each once, while a daemon leads. Nobody waits for it.

Only gangs that hold a place are looked at, and of one that reports no own times only that its file is not there.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gantree.api.views.straggler_view import StragglerJudge
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.telemetry.stragglers import SIGNS

EVERY_S = 15.0

Gang = tuple[str, int]
"""A job and its attempt."""
Named = dict[tuple[str, int, int, str], str]
"""Sentences by job, attempt, rank and sign."""
log = logging.getLogger(__name__)


async def watch_stragglers(loop: Loop, controller: Controller) -> None:
    """Look at all gangs again and again until cancelled."""
    judge = StragglerJudge()
    known: Named = {}
    while True:
        try:
            known = await one_round(loop, controller, judge, known)
        except Exception:  # an observation ends no daemon
            log.exception("stragglers are not known")
        await asyncio.sleep(EVERY_S)


async def one_round(
    loop: Loop, controller: Controller, judge: StragglerJudge, known: Named
) -> Named:
    """Look at all gangs once, log who was not known, and return who is named now."""
    gangs = await loop.call(lambda: _gangs(controller))
    named = await asyncio.to_thread(_named, judge, controller, gangs)
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
