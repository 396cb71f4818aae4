"""Measured links of a site, which replace the constants of `cost`.

`gantree topo measure` makes one, `formats.calibrations` reads and writes it. A calibration is of one backend: figures
over gloo on Ethernet say nothing of NCCL, and are never mixed with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gantree.model.cluster import Link


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One point: a collective over `ranks` GPUs (or CPU processes) on `nodes` nodes, and what it took.

    size_bytes and busbw_GBps are as nccl-tests define them; within is the weakest link class or the tier that its
    traffic crossed ("NV18", "PIX", "node", "leaf").
    """

    collective: str
    ranks: int
    nodes: int
    size_bytes: int
    time_s: float
    busbw_GBps: float
    within: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured links by link class ("NV18", "PIX"...) or by tier of the site ("node": what leaves a node).

    bandwidth_GBps of a link is the bus bandwidth that a large ring all-reduce over it reached, per GPU; latency_us
    the time of one ring step of a tiny message. backend is "nccl", "rccl", "gloo"; host and date say where and when.
    """

    backend: str
    host: str
    date: str
    links: Mapping[str, Link]
    rows: tuple[MeasuredRow, ...] = field(default=())
