"""Exporters of metrics of GPUs and NICs: their addresses, and HTTP requests to them. `telemetry` parses the answers."""

import logging
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypedDict, TypeVar
from urllib.parse import urlsplit

from gantree.model.errors import BadInput, GantreeError

ANSWER_WITHIN_S = 4.0
MOST_BYTES = 32 << 20
AT_ONCE = 16
NODE = "{node}"
"""Stands for the name of each node in the address of an exporter."""

K = TypeVar("K")
T = TypeVar("T")
Told = Mapping[str, Mapping[K, T]]
"""Readings by node, and by GPU index or NIC."""
log = logging.getLogger(__name__)


def checked(address: str, option: str) -> str:
    """The address of an exporter, as it was given with an option. Raises BadInput for what is none."""
    try:
        parts = urlsplit(address.replace(NODE, "node"))
        is_one = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        )
    except ValueError:
        is_one = False
    if not is_one:
        allowed = "a URL without a password, such as http://{node}:9400/metrics"
        raise BadInput(f"{option}: found {address!r}; allowed: {allowed}")
    return address


class Exporters(TypedDict):
    """Addresses of DCGM exporters, and of node_exporters."""

    gpu_metrics: tuple[str, ...]
    node_metrics: tuple[str, ...]


def exporters_of(gpus: Sequence[str] | None, nodes: Sequence[str] | None) -> Exporters:
    """The addresses that were given on the command line. Raises BadInput as `checked`."""
    return {
        "gpu_metrics": tuple(checked(address, "--gpu-metrics") for address in gpus or ()),
        "node_metrics": tuple(checked(address, "--node-metrics") for address in nodes or ()),
    }


def questions(
    exporters: Sequence[str], nodes: Sequence[str], read: Callable[[str], Told[K, T]]
) -> dict[str, Callable[[], Told[K, T]]]:
    """Return the exporters of these nodes by address; read parses their text."""
    return {
        address if node is None else address.replace(NODE, node): partial(
            _exported, address, node, read
        )
        for address in exporters
        for node in (nodes if NODE in address else (None,))
    }


def answers(
    asked: Mapping[str, Callable[[], Told[K, T]]], nodes: Sequence[str]
) -> tuple[dict[str, Mapping[K, T]], dict[str, str]]:
    """Return the readings of all exporters, polled concurrently, and errors by address."""
    with ThreadPoolExecutor(AT_ONCE) as several:
        told = list(several.map(_answered, asked.values()))
    found: dict[str, Mapping[K, T]] = {}
    silent: dict[str, str] = {}
    known = frozenset(nodes)
    for address, answer in zip(asked, told, strict=True):
        if isinstance(answer, Exception):
            silent[address] = str(answer)
        else:
            found.update({node: readings for node, readings in answer.items() if node in known})
    return found, silent


class SilenceLog:
    """Logs failing exporters once, until they answer again."""

    def __init__(self, what: str) -> None:
        """what is not known for it."""
        self._what = what
        self._silent: frozenset[str] = frozenset()

    def say(self, why: Mapping[str, str]) -> None:
        """These are silent now, and no others."""
        for name in sorted(why.keys() - self._silent):
            log.warning("%s is not known from %s: %s", self._what, name, why[name])
        self._silent = frozenset(why)


def _answered(ask: Callable[[], Told[K, T]]) -> Told[K, T] | Exception:
    try:
        return ask()
    except (GantreeError, OSError, ValueError) as error:
        return error


def _exported(address: str, node: str | None, read: Callable[[str], Told[K, T]]) -> Told[K, T]:
    """Return the readings of one exporter: of one node, or of all nodes that it names."""
    url = address if node is None else address.replace(NODE, node)
    with urllib.request.urlopen(url, timeout=ANSWER_WITHIN_S) as answer:  # noqa: S310 - see `checked`
        raw = answer.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise BadInput(f"more than {MOST_BYTES >> 20} MiB of metrics")
    told = read(raw.decode(errors="replace"))
    if node is None:
        return told
    return {node: {key: one for readings in told.values() for key, one in readings.items()}}
