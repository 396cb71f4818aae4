"""GPU utilisation for pages: from exporters, or for this machine from its driver.

It is read while somebody looks and not otherwise, at most every FRESH_S, beside all else: nobody waits for an exporter
but who asks for figures once, and nothing is decided by what it says. What does not answer is left out; that is said
once, until it answers again.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from socket import gethostname

from gantree.api.gpu_metrics.exporters import SilenceLog, answers, questions
from gantree.telemetry.dcgm.use import use_in
from gantree.telemetry.gpu_use import UseOfGpu
from gantree.telemetry.nvml.use import use_here

FRESH_S = 5.0
FRESH_WITHIN_S = 10.0
"""Seconds that a single query waits for exporters; pages do not wait."""

UseOfNode = Mapping[str, UseOfGpu]


class GpuCounters:
    """The newest use by node and GPU; version grows whenever it was read anew."""

    def __init__(
        self,
        exporters: Sequence[str] = (),
        here: tuple[str, Callable[[], UseOfGpu]] | None = None,
    ) -> None:
        """exporters are addresses accepted by `checked`; here is this machine's node and the reader of its GPUs."""
        self.use_of_node: UseOfNode = {}
        self.version = 0
        self._exporters = tuple(exporters)
        self._here = here
        self._looked_at = -FRESH_S
        self._looking: asyncio.Task[None] | None = None
        self._silence = SilenceLog("the use of GPUs")

    def covers(self, nodes: Sequence[str]) -> bool:
        """Return whether there is a source for any of these nodes."""
        return bool(self._exporters) or (self._here is not None and self._here[0] in nodes)

    def refresh(self, nodes: Sequence[str]) -> None:
        """Have it read anew for these nodes if it is not fresh, and do not wait."""
        if self._looking is None and time.monotonic() - self._looked_at >= FRESH_S:
            self._looking = asyncio.create_task(self._look(nodes))

    async def fresh(self, nodes: Sequence[str]) -> UseOfNode:
        """The use once it has been read anew, if it is not fresh; what there is, where that takes too long."""
        self.refresh(nodes)
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=FRESH_WITHIN_S)
        return self.use_of_node

    async def _look(self, nodes: Sequence[str]) -> None:
        try:
            await asyncio.to_thread(self._read, nodes)
        finally:
            self._looked_at = time.monotonic()
            self._looking = None

    def _read(self, nodes: Sequence[str]) -> None:
        """Ask all of them, some at once."""
        use, silent = answers(self._questions(nodes), nodes)
        self._silence.say(silent)
        self.use_of_node, self.version = use, self.version + 1

    def _questions(self, nodes: Sequence[str]) -> dict[str, Callable[[], UseOfNode]]:
        """Return the sources of utilisation, by their name in messages."""
        asked = questions(self._exporters, nodes, use_in)
        if self._here is not None and self._here[0] in nodes:
            asked[f"the driver of {self._here[0]}"] = partial(_driven, *self._here)
        return asked


def _driven(node: str, read: Callable[[], UseOfGpu]) -> UseOfNode:
    return {node: read()}


def counters_of(exporters: Sequence[str]) -> GpuCounters:
    """The counters that a daemon reads: of these exporters, else of this machine's driver."""
    if exporters:
        return GpuCounters(exporters)
    return GpuCounters(here=(gethostname(), use_here))
