"""An index of caches where a table needs one: few have the libraries that it takes."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from gantree.routing.table import RouteTable

if TYPE_CHECKING:
    from gantree.routing.cache_events.index import CacheIndex

log = logging.getLogger(__name__)
NEEDS = "affinity: cache needs libraries: pip install 'gantree[cache-events]'; it goes by what this router sent"


class CacheIndexes:
    """The index of one router, made when the first service wants it."""

    def __init__(self, tokenizers: Path | None = None) -> None:
        self._tokenizers = tokenizers
        self._is_tried = False
        self.index: CacheIndex | None = None

    async def apply(self, table: RouteTable) -> None:
        """Follow the caches of a table."""
        if not self._is_tried and any(each.routing.affinity == "cache" for each in table.services):
            self._is_tried = True
            self.index = _made(self._tokenizers)
        if self.index is not None:
            await self.index.apply(table)

    async def end(self) -> None:
        """Stop following."""
        if self.index is not None:
            await self.index.end()


def _made(tokenizers: Path | None) -> "CacheIndex | None":
    try:
        from gantree.routing.cache_events.index import CacheIndex  # noqa: PLC0415 - few have it
    except ModuleNotFoundError as error:
        log.warning("%s (%s)", NEEDS, error)
        return None
    return CacheIndex(tokenizers)
