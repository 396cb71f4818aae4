"""Keeps the tables of routers of all clusters by long polling, and the merged table with a version of its own."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gantree.api.client.async_client import AsyncClient
from gantree.api.client.service_requests import routes
from gantree.federation.api.route_table import ClusterTable, merged
from gantree.federation.driver import now_s
from gantree.federation.front import Front
from gantree.model.errors import GantreeError

Json = dict[str, Any]
WAIT_S = 20.0
ANSWER_WITHIN_S = 30.0
PAUSE_S = 1.0
LOOK_EVERY_S = 0.5
VERSIONS_KEPT = 1000


class Tables:
    """version is a number that rises with each change, from the moment of the start on, so over restarts too."""

    def __init__(self, front: Front, clients: Mapping[str, AsyncClient], version: int) -> None:
        self._front, self._clients = front, clients
        self._told: dict[str, tuple[str, tuple[Json, ...]]] = {}
        self.version, self.services = version, list[Json]()
        self._versions: dict[str, dict[str, str]] = {}
        self._changed = asyncio.Event()

    def known_by(self, version: str) -> list[ClusterTable]:
        """The tables by which a router sends requests that has this version; 0 where that is not known any more."""
        versions = self._versions.get(version, {})
        return [replace(table, version=versions.get(table.cluster, "0")) for table in self._now()]

    async def run(self) -> None:
        """Follow the tables until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cluster in self._clients:
                group.create_task(self._follow(cluster))
            while True:
                self.look()
                await asyncio.sleep(LOOK_EVERY_S)

    async def _follow(self, cluster: str) -> None:
        while True:
            after = self._told.get(cluster, ("", ()))[0]
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    answer = await self._clients[cluster].send(routes(after, wait_s=WAIT_S))
            except (GantreeError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
                continue
            self.take(cluster, answer)

    def take(self, cluster: str, answer: Json) -> None:
        """A cluster has answered with its table."""
        self._told[cluster] = answer["version"], tuple(answer["services"])
        self.look()

    def _now(self) -> list[ClusterTable]:
        """The tables as they came last, in the order of the file."""
        front, now = self._front, now_s()
        lost_after_s = front.federation.lost_after_s
        names: dict[str, dict[str, str]] = {}
        for job in front.jobs.values():
            if job.is_service and job.is_assigned:
                names.setdefault(job.cluster, {})[job.service_there] = job.name
        return [
            ClusterTable(
                name,
                *self._told[name],
                front.leases[name].is_connected(now, lost_after_s),
                names.get(name, {}),
            )
            for name in self._clients
            if name in self._told
        ]

    def look(self) -> None:
        """Merge the tables as they are now: a cluster may have been lost, too."""
        tables = self._now()
        services = merged(self._front.federation, tables)
        if services != self.services:
            self.services, self.version = services, self.version + 1
            self._changed.set()
            self._changed = asyncio.Event()
        self._versions.pop(str(self.version), None)
        self._versions[str(self.version)] = {each.cluster: each.version for each in tables}
        if len(self._versions) > VERSIONS_KEPT:
            del self._versions[next(iter(self._versions))]

    async def wait(self, after: str, wait_s: float) -> None:
        """Wait until the version is not `after`, at most for wait_s."""
        try:
            async with asyncio.timeout(wait_s):
                while str(self.version) == after:
                    await self._changed.wait()
        except TimeoutError:
            return
