"""Sources of metrics of GPUs, NICs and a fabric's ports: their addresses, and how they are read.

`telemetry` parses the texts. A source is asked over HTTP; a fabric's ports may also be in a file that somebody keeps
fresh: one that is older than STALE_S counts as one that does not answer.
"""

import logging
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar
from urllib.parse import urlsplit

from gantree.model.errors import BadInput, GantreeError

ANSWER_WITHIN_S = 4.0
MOST_BYTES = 32 << 20
AT_ONCE = 64
STALE_S = 600.0
FILE = "file://"
NODE = "{node}"
"""Stands for the name of each node in the address of an exporter."""

K = TypeVar("K")
T = TypeVar("T")
Told = Mapping[str, Mapping[K, T]]
"""Readings by node, and by GPU index or NIC."""
log = logging.getLogger(__name__)


def checked(address: str, option: str) -> str:
    """The address of an exporter, as it was given with an option. Raises BadInput for what is none."""
    if not _is_url(address):
        allowed = "a URL without a password, such as http://{node}:9400/metrics"
        raise BadInput(f"{option}: found {address!r}; allowed: {allowed}")
    return address


def checked_ports(address: str) -> str:
    """The source of a fabric's ports, as it was given. Raises BadInput for what is none."""
    is_file = address.startswith(FILE) and address.removeprefix(FILE).startswith("/")
    if NODE in address or not (is_file or _is_url(address)):
        allowed = (
            "file:///PATH, or a URL without a password, of UFM's ports or ibnetdiscover's print"
        )
        raise BadInput(f"--fabric-ports: found {address!r}; allowed: {allowed}")
    return address


def _is_url(address: str) -> bool:
    try:
        parts = urlsplit(address.replace(NODE, "node"))
        is_plain = bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and is_plain


class Exporters(TypedDict):
    """Addresses of DCGM exporters, of node_exporters, of a fabric's ports, and of the load of links; a Prometheus."""

    gpu_metrics: tuple[str, ...]
    node_metrics: tuple[str, ...]
    fabric_ports: tuple[str, ...]
    link_load: tuple[str, ...]
    prometheus: str | None


def exporters_of(
    gpus: Sequence[str] | None,
    nodes: Sequence[str] | None,
    ports: Sequence[str] | None,
    load: Sequence[str] | None,
    prometheus: str | None = None,
) -> Exporters:
    """The addresses that were given on the command line. Raises BadInput as `checked`."""
    return {
        "gpu_metrics": tuple(checked(address, "--gpu-metrics") for address in gpus or ()),
        "node_metrics": tuple(checked(address, "--node-metrics") for address in nodes or ()),
        "fabric_ports": tuple(map(checked_ports, ports or ())),
        "link_load": tuple(checked(address, "--link-load") for address in load or ()),
        "prometheus": None if prometheus is None else checked(prometheus, "--prometheus"),
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
    asked: Mapping[str, Callable[[], Told[K, T]]], nodes: Sequence[str] | None
) -> tuple[dict[str, Mapping[K, T]], dict[str, str]]:
    """Return the readings of all exporters, polled concurrently, and errors by address.

    Readings are of these nodes alone; None: they are not by node, and all are returned. What several exporters say of
    one node is joined figure by figure: one that says less takes nothing away. Of one figure the last exporter counts.
    """
    with ThreadPoolExecutor(AT_ONCE) as several:
        told = list(several.map(_answered, asked.values()))
    found: dict[str, Mapping[K, T]] = {}
    silent: dict[str, str] = {}
    known = None if nodes is None else frozenset(nodes)
    for address, answer in zip(asked, told, strict=True):
        if isinstance(answer, Exception):
            silent[address] = str(answer)
        else:
            for key, one in answer.items():
                if known is None or key in known:
                    found[key] = _joined(found[key], one) if key in found else one
    return found, silent


def _joined(before: Mapping[K, T], more: Mapping[K, T]) -> Mapping[K, T]:
    """Readings of one node by two exporters."""
    both: dict[K, Any] = {**before}
    for key, reading in more.items():
        old = both.get(key)
        if isinstance(old, Mapping) and isinstance(reading, Mapping):
            both[key] = {**old, **reading}
        else:
            both[key] = reading
    return both


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
    told = read(_text(url))
    if node is None:
        return told
    return {node: {key: one for readings in told.values() for key, one in readings.items()}}


def _text(url: str) -> str:
    """What a source says. Raises OSError, and BadInput for too much, and for a file that is stale."""
    if url.startswith(FILE):
        age_s = time.time() - Path(url.removeprefix(FILE)).stat().st_mtime
        if age_s > STALE_S:
            raise BadInput(f"the file was written {age_s / 60:.0f} minutes ago")
    with urllib.request.urlopen(url, timeout=ANSWER_WITHIN_S) as answer:  # noqa: S310 - see `checked`
        raw: bytes = answer.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise BadInput(f"more than {MOST_BYTES >> 20} MiB of metrics")
    return raw.decode(errors="replace")
