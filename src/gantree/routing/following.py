"""Follows the table of a daemon: asks for what comes after a version, for ever. A table that cannot be had stays."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gantree.model.errors import GantreeError
from gantree.routing.table import RouteTable, table_of

log = logging.getLogger(__name__)
AGAIN_S = 1.0

Fetch = Callable[[str], Awaitable[Any]]
"""Asks for a table after a version: the same one after a while, or another one as soon as there is one."""
Post = Callable[[Mapping[str, Any]], Awaitable[object]]
"""Hands in a report."""


@dataclass(frozen=True, slots=True)
class Source:
    """A daemon: where tables come from and reports go to."""

    fetch: Fetch
    post: Post

    async def report(self, report: Mapping[str, Any]) -> None:
        """Hand in a report; one that is lost is not missed."""
        try:
            await self.post(report)
        except GantreeError as error:
            log.debug("a report is lost: %s", error)


async def follow(
    source: Source, answered: Callable[[], None], apply: Callable[[RouteTable], Awaitable[None]]
) -> None:
    """Apply each table that is another one; answered is called whenever the daemon has answered."""
    is_lost = False
    version = ""
    while True:
        try:
            table = table_of(await source.fetch(version))
            answered()
            if is_lost:
                log.info("the daemon answers again")
            is_lost = False
            if table.version != version or not version:
                await apply(table)
                version = table.version
        except GantreeError as error:
            if not is_lost:
                log.warning("the last table stays in force: %s", error)
            is_lost = True
            await asyncio.sleep(AGAIN_S)
