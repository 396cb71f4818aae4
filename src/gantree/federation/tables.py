"""Keeps the tables of routers of all clusters by long polling, and the merged table with a version of its own."""

import asyncio
from collections.abc import Mapping
from typing import Any

from gantree.api.client.async_client import AsyncClient
from gantree.api.client.service_requests import routes
from gantree.federation.driver import now_s
from gantree.federation.front import Front
from gantree.federation.route_table import ClusterTable, merged
from gantree.model.errors import GantreeError

Json = dict[str, Any]
WAIT_S = 20.0
ANSWER_WITHIN_S = 30.0
PAUSE_S = 1.0
LOOK_EVERY_S = 0.5


class Tables:
    """version is a number that rises with each change, from the moment of the start on, so over restarts too."""

    def __init__(self, front: Front, clients: Mapping[str, AsyncClient], version: int) -> None:
        self._front, self._clients = front, clients
        self._told: dict[str, tuple[str, tuple[Json, ...]]] = {}
        self.version, self.services = version, list[Json]()
        self._changed = asyncio.Event()

    @property
    def versions(self) -> dict[str, str]:
        """The version of each cluster's table."""
        return {cluster: version for cluster, (version, _) in self._told.items()}

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
            self._told[cluster] = answer["version"], tuple(answer["services"])
            self.look()

    def look(self) -> None:
        """Merge the tables as they are now: a cluster may have been lost, too."""
        front, now = self._front, now_s()
        lost_after_s = front.federation.lost_after_s
        tables = [
            ClusterTable(
                name, version, services, front.leases[name].is_connected(now, lost_after_s)
            )
            for name, (version, services) in sorted(self._told.items())
        ]
        services = merged(front.federation, tables)
        if services != self.services:
            self.services, self.version = services, self.version + 1
            self._changed.set()
            self._changed = asyncio.Event()

    async def wait(self, after: str, wait_s: float) -> None:
        """Wait until the version is not `after`, at most for wait_s."""
        try:
            async with asyncio.timeout(wait_s):
                while str(self.version) == after:
                    await self._changed.wait()
        except TimeoutError:
            return
