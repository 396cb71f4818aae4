"""The use of the cluster's GPUs as the pages show it: read from exporters, or of this machine from its driver.

It is read while somebody looks and not otherwise, at most every FRESH_S, beside all else: nobody waits for an exporter
but who asks for figures once, and nothing is decided by what it says. What does not answer is left out; that is said
once, until it answers again.
"""

import asyncio
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from socket import gethostname
from urllib.parse import urlsplit

from gantree.api.settings import Settings
from gantree.model.errors import BadInput, GantreeError
from gantree.telemetry.dcgm import use_in
from gantree.telemetry.gpu_use import UseOfGpu
from gantree.telemetry.nvml_use import use_here

FRESH_S = 5.0
ANSWER_WITHIN_S = 4.0
FRESH_WITHIN_S = 10.0
"""So long somebody waits for exporters who asks for figures once; pages do not wait."""
MOST_BYTES = 32 << 20
AT_ONCE = 16
NODE = "{node}"
"""Stands for the name of each node in the address of an exporter."""

UseOfNode = Mapping[str, UseOfGpu]
log = logging.getLogger(__name__)


class GpuCounters:
    """The newest use by node and GPU; version grows whenever it was read anew."""

    def __init__(
        self,
        exporters: Sequence[str] = (),
        here: tuple[str, Callable[[], UseOfGpu]] | None = None,
    ) -> None:
        """exporters are addresses as `checked` lets through; here is this machine's node and who reads its GPUs."""
        self.use_of_node: UseOfNode = {}
        self.version = 0
        self._exporters = tuple(exporters)
        self._here = here
        self._looked_at = -FRESH_S
        self._looking: asyncio.Task[None] | None = None
        self._silent: frozenset[str] = frozenset()

    def tell_of(self, nodes: Sequence[str]) -> bool:
        """Whether anybody is asked about any of these nodes."""
        return bool(self._exporters) or (self._here is not None and self._here[0] in nodes)

    def look_soon(self, nodes: Sequence[str]) -> None:
        """Have it read anew for these nodes if it is not fresh, and do not wait."""
        if self._looking is None and time.monotonic() - self._looked_at >= FRESH_S:
            self._looking = asyncio.create_task(self._look(nodes))

    async def fresh(self, nodes: Sequence[str]) -> UseOfNode:
        """The use once it has been read anew, if it is not fresh; what there is, where that takes too long."""
        self.look_soon(nodes)
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
        asked = self._questions(nodes)
        with ThreadPoolExecutor(AT_ONCE) as several:
            told = list(several.map(_answered, asked.values()))
        self._say_who_is_silent(
            {
                name: str(found)
                for name, found in zip(asked, told, strict=True)
                if isinstance(found, Exception)
            }
        )
        use: dict[str, UseOfGpu] = {}
        known = frozenset(nodes)
        for found in told:
            if not isinstance(found, Exception):
                use.update({node: of_gpu for node, of_gpu in found.items() if node in known})
        self.use_of_node, self.version = use, self.version + 1

    def _questions(self, nodes: Sequence[str]) -> dict[str, Callable[[], UseOfNode]]:
        """By the name in messages, what tells the use of nodes."""
        asked: dict[str, Callable[[], UseOfNode]] = {}
        for address in self._exporters:
            for node in nodes if NODE in address else (None,):
                url = address if node is None else address.replace(NODE, node)
                asked[url] = partial(_exported, url, node)
        if self._here is not None and self._here[0] in nodes:
            asked[f"the driver of {self._here[0]}"] = partial(_driven, *self._here)
        return asked

    def _say_who_is_silent(self, why: Mapping[str, str]) -> None:
        for name in sorted(why.keys() - self._silent):
            log.warning("the use of GPUs is not known from %s: %s", name, why[name])
        self._silent = frozenset(why)


def checked(address: str) -> str:
    """The address of an exporter, as it was given. Raises BadInput for what is none."""
    try:
        parts = urlsplit(address.replace(NODE, "node"))
        is_one = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        )
    except ValueError:
        is_one = False
    if not is_one:
        allowed = "a URL without a password, such as http://{node}:9400/metrics"
        raise BadInput(f"--gpu-metrics: found {address!r}; allowed: {allowed}")
    return address


def _answered(ask: Callable[[], UseOfNode]) -> UseOfNode | Exception:
    try:
        return ask()
    except (GantreeError, OSError, ValueError) as error:
        return error


def _exported(url: str, node: str | None) -> UseOfNode:
    """What an exporter tells: of one node, or of all that it names."""
    with urllib.request.urlopen(url, timeout=ANSWER_WITHIN_S) as answer:  # noqa: S310 - see `checked`
        raw = answer.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise BadInput(f"more than {MOST_BYTES >> 20} MiB of metrics")
    told = use_in(raw.decode(errors="replace"))
    if node is None:
        return told
    return {node: {gpu: use for of_gpu in told.values() for gpu, use in of_gpu.items()}}


def _driven(node: str, read: Callable[[], UseOfGpu]) -> UseOfNode:
    return {node: read()}


def counters_of(settings: Settings) -> GpuCounters:
    """The counters that a daemon asks: the exporters that are named, else this machine's driver."""
    if settings.gpu_metrics:
        return GpuCounters(settings.gpu_metrics)
    return GpuCounters(here=(gethostname(), use_here))
