"""The load of services as their replicas tell it at /metrics, for what routers do not tell.

Replicas that are ready are asked at the first member's port; one that does not answer, or answers what is none, is left
out, and then sums are not known. Kept in memory: the last text of each attempt, of which the next one is told apart.
"""

import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gantree.model.errors import BadInput
from gantree.model.phases import AttemptKey
from gantree.model.replicas import Endpoint
from gantree.telemetry.engine_metrics import (
    ITL,
    LATENCY,
    TTFT,
    EngineFigures,
    EngineUse,
    between,
    figures_in,
    quantile,
)

ANSWER_WITHIN_S = 2.0
MOST_BYTES = 8 << 20
AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What the replicas of a service tell together; sums, and quantiles over all. None: not all tell it."""

    at_s: float
    running: float | None = None
    waiting: float | None = None
    rate: float | None = None
    tokens_per_s: float | None = None
    latency_p99_s: float | None = None
    ttft_p99_s: float | None = None
    itl_p99_s: float | None = None

    @property
    def concurrency(self) -> float | None:
        """Requests in work or waiting."""
        return None if self.running is None else self.running + (self.waiting or 0.0)


def scraped(endpoints: Mapping[AttemptKey, Endpoint]) -> dict[AttemptKey, EngineFigures]:
    """Ask replicas at the same time, on threads; those that do not answer are left out."""
    if not endpoints:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(endpoints))) as several:
        found = zip(endpoints, several.map(_figures_of, endpoints.values()), strict=True)
        return {attempt: figures for attempt, figures in found if figures is not None}


def _figures_of(endpoint: Endpoint) -> EngineFigures | None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        url = f"http://{endpoint.address}/metrics"
        with opener.open(url, timeout=ANSWER_WITHIN_S) as answer:
            return figures_in(answer.read(MOST_BYTES).decode())
    except (OSError, ValueError, BadInput):
        return None


@dataclass(slots=True)
class EngineLoads:
    """The last text of each attempt, and when it came."""

    _of_attempt: dict[AttemptKey, tuple[float, EngineFigures]] = field(default_factory=dict)

    def take(
        self, asked: Iterable[AttemptKey], found: Mapping[AttemptKey, EngineFigures], now: float
    ) -> EngineLoad:
        """Return the load that texts of the replicas of one service tell together."""
        uses: list[tuple[float, EngineFigures | None, EngineFigures]] = []
        attempts = list(asked)
        for attempt in attempts:
            figures = found.get(attempt)
            if figures is not None:
                since, before = self._of_attempt.get(attempt, (now, None))
                uses.append((now - since, before, figures))
                self._of_attempt[attempt] = now, figures
        if not uses or len(uses) < len(attempts):
            return EngineLoad(now)
        return _together(uses, now)

    def keep(self, attempts: Iterable[AttemptKey]) -> None:
        """Forget all other attempts."""
        for gone in self._of_attempt.keys() - set(attempts):
            del self._of_attempt[gone]


def _together(
    found: Sequence[tuple[float, EngineFigures | None, EngineFigures]], now: float
) -> EngineLoad:
    running = _sum(figures.running for _, _, figures in found)
    waiting = _sum(figures.waiting for _, _, figures in found)
    used = [
        (seconds, between(before, figures), _more_present(before, figures))
        for seconds, before, figures in found
        if before is not None and seconds > 0
    ]
    if len(used) < len(found):
        return EngineLoad(now, running, waiting)
    rates = (None if use.done is None else max(0.0, use.done + more) / s for s, use, more in used)
    tokens = (None if use.tokens is None else use.tokens / seconds for seconds, use, _ in used)
    uses = [use for _, use, _ in used]
    return EngineLoad(
        now, running, waiting, _sum(rates), _sum(tokens),
        _p99(LATENCY, uses), _p99(TTFT, uses), _p99(ITL, uses),
    )  # fmt: skip


def _more_present(before: EngineFigures, after: EngineFigures) -> float:
    """By how many more requests are there: they have arrived, and are not done."""
    if before.present is None or after.present is None:
        return 0.0
    return after.present - before.present


def _p99(kind: str, uses: Sequence[EngineUse]) -> float | None:
    """The p99 of what ended; 0 where all tell it and nothing ended."""
    if not all(kind in use.times for use in uses):
        return None
    return quantile(0.99, (use.times[kind] for use in uses)) or 0.0


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
