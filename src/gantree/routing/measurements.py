"""Reports to the daemon: how many requests there were, and what those that have ended took.

Tokens are not counted: engines do not agree on how to say how many they have written.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gantree.routing.table import RoutedReplica, RoutedService, RouteTable

LONGEST_WINDOW_S = 300.0
MOST_SAMPLES = 20_000
"""Of one service in one report; of more a random sample."""


class Record(NamedTuple):
    """A request that has ended. first_byte_s: from the whole request to the response's head; None: no replica's."""

    backend: str
    server: str | None
    status: int
    first_byte_s: float | None
    total_s: float
    retries: int
    reason: str
    is_shed: bool
    is_broken_off: bool = False

    @property
    def is_error(self) -> bool:
        """Whether the service, and not its client, is at fault."""
        return self.is_broken_off or (self.status >= 500 and not self.is_shed)


class Now(NamedTuple):
    """How many requests there are now: by backend those that wait, by (backend, server) those in work."""

    queued: Mapping[str, int]
    in_flight: Mapping[tuple[str, str], int]

    @property
    def is_idle(self) -> bool:
        """Whether there is no request."""
        return not (any(self.queued.values()) or any(self.in_flight.values()))


def drained(table: RouteTable, now: Now) -> frozenset[tuple[str, int]]:
    """Return the attempts of draining replicas that work on no request any more: these are reported at once."""
    return frozenset(
        (each.replica, each.attempt)
        for service in table.services
        for each in service.replicas
        if each.draining and not now.in_flight.get((service.backend, each.server))
    )


@dataclass(slots=True)
class _Window:
    requests: int = 0
    errors: int = 0
    shed: int = 0
    samples: int = 0
    totals_s: list[float] = field(default_factory=list)
    first_bytes_s: list[float] = field(default_factory=list)
    requests_of: Counter[str] = field(default_factory=Counter)
    errors_of: Counter[str] = field(default_factory=Counter)
    concurrency: float = 0.0

    def add(self, record: Record, draw: random.Random) -> None:
        self.requests += 1
        self.errors += record.is_error
        self.shed += record.is_shed
        if record.server is not None:
            self.requests_of[record.server] += 1
            self.errors_of[record.server] += record.is_error
        if record.first_byte_s is None or record.is_error:
            return
        self.samples += 1
        for values, value in (
            (self.totals_s, record.total_s),
            (self.first_bytes_s, record.first_byte_s),
        ):
            if len(values) < MOST_SAMPLES:
                values.append(value)
            elif (place := draw.randrange(self.samples)) < MOST_SAMPLES:
                values[place] = value


class Measurements:
    """What has ended since the last report, and how many requests there were at the moments in between."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._windows: dict[str, _Window] = {}
        self._samples = 0

    def record(self, record: Record) -> None:
        """Count a request that has ended."""
        self._windows.setdefault(record.backend, _Window()).add(record, self._draw)

    def sample(self, now: Now) -> None:
        """Count what is in work now, for the mean of it."""
        self._samples += 1
        for backend, queued in now.queued.items():
            self._windows.setdefault(backend, _Window()).concurrency += queued
        for (backend, _), in_flight in now.in_flight.items():
            self._windows.setdefault(backend, _Window()).concurrency += in_flight

    def report(self, router: str, table: RouteTable, now: Now, window_s: float) -> dict[str, Any]:
        """Return the report of the last window_s, and begin the next one. table: what requests go by."""
        windows, self._windows = self._windows, {}
        samples, self._samples = max(1, self._samples), 0
        rows = [
            _service_row(each, windows.get(each.backend, _Window()), now, window_s, samples)
            for each in table.services
        ]
        window_s = min(max(round(window_s, 3), 0.001), LONGEST_WINDOW_S)
        return {"router": router, "window_s": window_s, "version": table.version, "services": rows}


def _service_row(
    service: RoutedService, window: _Window, now: Now, window_s: float, samples: int
) -> dict[str, Any]:
    replicas = [_replica_row(service, each, window, now) for each in service.replicas]
    return {
        "service": service.service,
        "requests": window.requests,
        "errors": window.errors,
        "shed": window.shed,
        "in_flight": sum(each["in_flight"] for each in replicas),
        "queued": now.queued.get(service.backend, 0),
        "concurrency": round(window.concurrency / samples, 3),
        "rate": round(window.requests / window_s, 3),
        "latency_p50_s": quantile(window.totals_s, 0.5),
        "latency_p99_s": quantile(window.totals_s, 0.99),
        "ttft_p99_s": quantile(window.first_bytes_s, 0.99),
        "itl_p99_s": None,
        "tokens_per_s": None,
        "replicas": replicas,
    }


def _replica_row(
    service: RoutedService, replica: RoutedReplica, window: _Window, now: Now
) -> dict[str, Any]:
    return {
        "replica": replica.replica,
        "attempt": replica.attempt,
        "in_flight": now.in_flight.get((service.backend, replica.server), 0),
        "requests": window.requests_of[replica.server],
        "errors": window.errors_of[replica.server],
    }


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which this share of the others is; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
