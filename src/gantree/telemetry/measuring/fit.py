"""Fits links to times of collectives: bandwidth from large messages, latency from small ones.

A ring over n ranks takes

    time = latency x steps + bus_bytes / bandwidth

    collective              steps     bus_bytes (size as nccl-tests count it)
    all_reduce              2(n-1)    2(n-1)/n x size
    all_gather, reduce_scatter,
    all_to_all              n-1       (n-1)/n x size
    broadcast, reduce       n-1       size
    send_recv               1         size

so `bus_bytes / time` is the bus bandwidth of nccl-tests. The two unknowns are fitted as Theil and Sen do, by medians
of slopes, but only over pairs of a small and a large size: in between a library changes its protocol, and no one line
fits. Outliers (a busy host, a first page fault) move a median little. NCCL's small messages do not take a ring's
steps (it uses trees and NVSwitch): the latency is then what a ring would need to take as long.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from gantree.model.cluster import Link
from gantree.topology.fabric.calibration import MeasuredRow

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_ALL_SHARE = ("all_gather", "reduce_scatter", "all_to_all")
FITTED = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "send_recv",
    "broadcast",
    "reduce",
)
"""Collectives that a link may be fitted to, best first."""
SMALL_SPAN = 16
LARGE_SPAN = 4
"""Sizes up to so many times the smallest are small; those from the largest over so many on are large."""
TOLD_AT = 2.0
"""A large message tells a bandwidth if it takes so many times as long as a small one."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A link; told is false where even large messages were mostly latency: then its bandwidth is a lower bound."""

    link: Link
    told: bool


def steps(collective: str, ranks: int) -> int:
    """Return how many messages one after the other a ring takes."""
    if collective == "send_recv":
        return 1
    return (2 if collective == "all_reduce" else 1) * (ranks - 1)


def bus_bytes(collective: str, ranks: int, size_bytes: int) -> float:
    """Return the bytes that cross each link of the ring."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks * size_bytes
    return (ranks - 1) / ranks * size_bytes if collective in _ALL_SHARE else float(size_bytes)


def busbw_GBps(collective: str, ranks: int, size_bytes: int, time_s: float) -> float:
    """Return the bus bandwidth in GB/s as nccl-tests define it."""
    return bus_bytes(collective, ranks, size_bytes) / time_s / 1e9


def links_of(rows: Iterable[MeasuredRow]) -> dict[str, Fitted]:
    """Return a link for each `within` of the rows that has two sizes, in their order.

    Where there are several, the link is fitted to the best collective of FITTED and the fewest ranks: two GPUs show a
    path, more of them may use several paths at once.
    """

    def series(row: MeasuredRow) -> tuple[str, int, int]:
        return row.within, FITTED.index(row.collective), row.ranks

    links: dict[str, Fitted] = {}
    usable = [row for row in rows if row.collective in FITTED and row.ranks > 1 and row.size_bytes]
    for (within, *_), found in groupby(sorted(usable, key=series), key=series):
        points = list(found)
        if within not in links and len({row.size_bytes for row in points}) > 1:
            links[within] = fit(points)
    return {
        name: links[name] for name in dict.fromkeys(row.within for row in usable) if name in links
    }


def fit(rows: Sequence[MeasuredRow]) -> Fitted:
    """Fit a link to rows of one collective, one number of ranks, and at least two sizes.

    Where large messages took hardly longer than small ones, no slope can be told from noise: then the bandwidth is the
    best bus bandwidth that was seen, and the latency the median time of a step of the small ones.
    """
    first = rows[0]
    count = steps(first.collective, first.ranks)
    size = np.array([row.size_bytes for row in rows], dtype=np.float64)
    time_s = np.array([row.time_s for row in rows])
    crossing = np.array([bus_bytes(first.collective, row.ranks, row.size_bytes) for row in rows])
    small, large = _ends(size)
    small_s = float(np.median(time_s[small]))
    if float(np.median(time_s[size == size.max()])) < TOLD_AT * small_s:
        best_GBps = float(np.max(crossing / time_s)) / 1e9
        return Fitted(Link(best_GBps, small_s / count * 1e6), told=False)
    rise_s = time_s[large][None, :] - time_s[small][:, None]
    run_bytes = crossing[large][None, :] - crossing[small][:, None]
    s_per_byte = float(np.median(rise_s / run_bytes))
    if s_per_byte <= 0:  # only the very largest took longer
        s_per_byte = float(np.min(time_s / crossing))
    latency_s = float(np.median(time_s[small] - crossing[small] * s_per_byte)) / count
    return Fitted(Link(1e-9 / s_per_byte, max(0.0, latency_s * 1e6)), told=True)


def _ends(size: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Return which sizes are small and which are large; none is both, and each is some."""
    least, most = size.min(), size.max()
    middle = np.sqrt(least * most)
    return size <= min(least * SMALL_SPAN, middle), size >= max(
        most / LARGE_SPAN, middle * 1.000001
    )


def predicted_s(link: Link, collective: str, ranks: int, size_bytes: int) -> float:
    """Return the seconds that a link says a ring takes."""
    crossing = bus_bytes(collective, ranks, size_bytes)
    return link.latency_us * 1e-6 * steps(collective, ranks) + crossing / (
        link.bandwidth_GBps * 1e9
    )
