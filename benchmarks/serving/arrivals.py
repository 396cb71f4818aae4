"""Requests of a compressed day: as many a second as its hour asks for, each sent when it is due, whatever is open.

A day begins at night, when there are NIGHT of the requests of its peak at noon; between the two goes a cosine. Arrivals
are a Poisson process by seed, so two days of one seed have the same requests at the same moments.
"""

import asyncio
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

NIGHT = 0.4
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request: when it was due in seconds of the day, and the time from then to its end.

    status 0: none came. why: what went wrong, "" for status 200.
    """

    due_s: float
    took_s: float
    status: int
    why: str = ""


def rate_at(due_s: float, day_s: float, peak_per_s: float) -> float:
    """Requests a second at a moment of the day."""
    by_day = (1.0 - math.cos(2.0 * math.pi * due_s / day_s)) / 2.0
    return peak_per_s * (NIGHT + (1.0 - NIGHT) * by_day)


def arrivals(day_s: float, peak_per_s: float, seed: int) -> list[float]:
    """When requests are due: a Poisson process of the peak's rate, thinned."""
    generator, at = random.Random(seed), 0.0
    moments: list[float] = []
    while True:
        at += generator.expovariate(peak_per_s)
        if at >= day_s:
            return moments
        if generator.random() * peak_per_s < rate_at(at, day_s, peak_per_s):
            moments.append(at)


async def send_all(url: str, body: object, moments: Sequence[float]) -> list[Answer]:
    """Send a request at each of these moments, from now on, and wait for all answers."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        began = time.perf_counter()
        tasks = []
        for due in moments:
            await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
            tasks.append(asyncio.create_task(_send(session, url, body, began, due)))
        return list(await asyncio.gather(*tasks))


async def _send(
    session: aiohttp.ClientSession, url: str, body: object, began: float, due: float
) -> Answer:
    status, why = 0, ""
    try:
        async with session.post(url, json=body) as response:
            text = await response.text()
            status, why = response.status, "" if response.status == 200 else text[:200]
    except (aiohttp.ClientError, TimeoutError) as error:
        why = repr(error)
    return Answer(due, time.perf_counter() - began - due, status, why)


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
