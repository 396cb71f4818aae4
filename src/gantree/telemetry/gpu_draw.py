"""What a GPU draws and sends, from its counters: watts, and bytes over NVLink. Names are those of DCGM's exporter.

DCGM_FI_DEV_POWER_USAGE is among the exporter's defaults. DCGM_FI_PROF_NVLINK_TX_BYTES is a rate, in bytes a second
without headers, and a line of its counters file that is to be uncommented; what a GPU receives, another one has sent.
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html (profiling metrics)
"""

from collections.abc import Mapping

POWER, NVLINK_SENT = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_NVLINK_TX_BYTES"
DRAW_FIGURES = frozenset({POWER, NVLINK_SENT})
MOST_W, MOST_BYTES_PER_S = 10_000.0, 10e12
"""More than any GPU draws or sends; a figure above is garbage."""
GIGA = 1e9


def watts(figures: Mapping[str, float]) -> float | None:
    """What a GPU draws; None if its figures do not tell."""
    return _sound(figures.get(POWER), MOST_W)


def nvlink_GBps(figures: Mapping[str, float]) -> float | None:
    """GB a second that a GPU sends over NVLink; None if its figures do not tell."""
    sent = _sound(figures.get(NVLINK_SENT), MOST_BYTES_PER_S)
    return None if sent is None else sent / GIGA


def _sound(figure: float | None, most: float) -> float | None:
    return figure if figure is not None and 0.0 <= figure <= most else None
