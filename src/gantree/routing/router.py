"""One router while it runs: follows the table, keeps HAProxy by it, measures and reports.

A table that cannot be had stays the last one. A report goes out every REPORT_S, and at once when the last request has
left a replica that drains, or the first one waits for a service without a ready replica.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantree.model.errors import GantreeError
from gantree.routing.addresses import resolved
from gantree.routing.cache_events.lookup_socket import open_lookups
from gantree.routing.cache_events.match import Match
from gantree.routing.cache_events.opening import CacheIndexes
from gantree.routing.following import Source, follow
from gantree.routing.haproxy.log_socket import open_log
from gantree.routing.haproxy.output import record_of
from gantree.routing.haproxy.proxies import Proxies
from gantree.routing.measurements import Measurements, Now, drained
from gantree.routing.route_metrics import RouteMetrics
from gantree.routing.table import RouteTable, table_of

log = logging.getLogger(__name__)
choices = logging.getLogger(f"{__name__}.choices")
REPORT_S = 2.0
SAMPLE_S = 0.5
_TROUBLE = re.compile(r"error|is DOWN|no server available")
SAMPLE_OFTEN_S = 0.1


class Router:
    """Runs until it is stopped."""

    def __init__(
        self,
        name: str,
        proxies: Proxies,
        directory: Path,
        source: Source | None,
        table: RouteTable,
        *,
        explain: bool = False,
        tokenizers: Path | None = None,
    ) -> None:
        """table: that of a file, or what holds until the source answers. directory: that of the proxies.

        tokenizers: a directory with those of models, for `affinity: cache`.
        """
        self.metrics = RouteMetrics()
        self._name = name
        self._proxies = proxies
        self._directory = directory
        self._source = source
        self._table = table
        self._explain = explain
        self._caches = CacheIndexes(tokenizers)
        self._measurements = Measurements(random.Random(0))  # noqa: S311 - a sample of figures
        self._table_s = time.monotonic()
        self._service_of: dict[str, str] = {}
        self._drained: frozenset[tuple[str, int]] = frozenset()
        self._lacking: frozenset[str] = frozenset()

    async def run(self, stop: asyncio.Event, drain_s: float, ready: Callable[[], None]) -> None:
        """Route until stop is set, then finish what has begun. Raises Unreachable if HAProxy does not start."""
        lines = await open_log(self._directory, self._record)
        lookups = await open_lookups(self._directory, self)
        tasks: list[asyncio.Task[Any]] = []
        try:
            await self._apply(
                self._table if self._source is None else await self._first(self._source)
            )
            tasks = [asyncio.create_task(each) for each in (self._proxies.watch(), self._measure())]
            if self._source is not None:
                tasks.append(asyncio.create_task(follow(self._source, self._answered, self._apply)))
            ready()
            stopped = asyncio.create_task(stop.wait())
            done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for each in done - {stopped}:
                each.result()
        finally:
            for each in tasks:
                each.cancel()
            await self._proxies.end(drain_s)
            await self._caches.end()
            lookups.close()
            lines.close()
            await self._last_report()

    def _record(self, line: str) -> None:
        try:
            record = record_of(line)
        except ValueError:
            level = logging.WARNING if _TROUBLE.search(line) else logging.INFO
            log.log(level, "HAProxy says: %s", line.strip())
            return
        if record is None:
            return
        self._measurements.record(record)
        service = self._service_of.get(record.backend, record.backend)
        self.metrics.record(service, record)
        if self._explain:
            choices.info(
                "choice",
                extra={
                    "service": service, "server": record.server, "reason": record.reason, "status": record.status,
                    "retries": record.retries, "seconds": record.total_s,
                },
            )  # fmt: skip

    async def _apply(self, table: RouteTable) -> None:
        resolved_table = await resolved(table, lambda text: log.warning("no address: %s", text))
        for shared in sorted({*table.shared_models} - {*self._table.shared_models}):
            log.warning("%s: requests for it go to the first", shared)
        self._service_of |= {each.backend: each.service for each in table.services}
        await self._proxies.apply(resolved_table)
        await self._caches.apply(resolved_table)
        self._table = (
            resolved_table  # reports are about it: who drains gets nothing from here any more
        )

    async def match(self, backend: str, body: bytes) -> Match | None:
        """What the replicas of a service hold of a prompt."""
        index, began_s = self._caches.index, time.monotonic()
        match = None if index is None else await index.match(backend, body)
        service, took_s = self._service_of.get(backend, backend), time.monotonic() - began_s
        self.metrics.looked_up(service, match, took_s)
        return match

    def expect(self, backend: str, server: str, match: Match) -> None:
        """A prompt was sent to a replica."""
        if self._caches.index is not None:
            self._caches.index.expect(backend, server, match)

    def _answered(self) -> None:
        self._table_s = time.monotonic()

    async def _first(self, source: Source) -> RouteTable:
        """The daemon's table, or one without services while there is no daemon."""
        try:
            return table_of(await source.fetch(""))
        except GantreeError as error:
            log.warning("no table yet: %s", error)
            return self._table

    async def _measure(self) -> None:
        """Measure for ever, and report; of new services at once: the daemon then counts on what is reported of them."""
        reported_s, restarts, reported = time.monotonic(), 0, frozenset[str]()
        while True:
            await asyncio.sleep(SAMPLE_OFTEN_S if self._is_ending() else SAMPLE_S)
            table = (
                self._table
            )  # one that comes meanwhile was not in force when the requests were counted
            now = await self._proxies.now()
            self._measurements.sample(now)
            self.metrics.sample(table, now, time.monotonic() - self._table_s)
            for _ in range(self._proxies.restarts - restarts):
                self.metrics.restarted()
            restarts = self._proxies.restarts
            self._sample_caches()
            empty, lacking = drained(table, now), _lacking(table, now)
            is_due = time.monotonic() - reported_s >= REPORT_S
            names = frozenset(each.service for each in table.services)
            if empty != self._drained or lacking - self._lacking or names - reported or is_due:
                self._drained, self._lacking, reported = empty, lacking, names
                await self._report(table, now, time.monotonic() - reported_s)
                reported_s = time.monotonic()

    def _sample_caches(self) -> None:
        index = self._caches.index
        for backend, held in (index.held() if index else {}).items():
            self.metrics.sample_cache(self._service_of.get(backend, backend), held)

    def _is_ending(self) -> bool:
        """Whether something is to be seen soon: a replica drains, or a process of HAProxy ends."""
        draining = any(
            each.draining for service in self._table.services for each in service.replicas
        )
        return draining or self._proxies.is_changing

    async def _report(self, table: RouteTable, now: Now, window_s: float) -> None:
        report = self._measurements.report(self._name, table, now, window_s)
        if self._source is not None:
            await self._source.report(report)

    async def _last_report(self) -> None:
        """Nothing is in work here any more: whoever drains need not wait for this router."""
        await self._report(self._table, Now({}, {}), REPORT_S)


def _lacking(table: RouteTable, now: Now) -> frozenset[str]:
    """The services for which requests wait although they have no replica that gets any."""
    return frozenset(
        service.service
        for service in table.services
        if now.queued.get(service.backend)
        and not any(each.ready and not each.draining for each in service.replicas)
    )
