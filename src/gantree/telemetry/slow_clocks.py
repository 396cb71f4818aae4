"""Names GPUs of a gang whose SM clock under load is persistently below that of their peers. Pure, over arrays.

A GPU that is throttled (heat, power, a cap that somebody set) computes slower than its peers and holds up the gang. Its
utilisation says nothing: ranks that wait inside a collective are at 100 %, too. Its clock does: DCGM_FI_DEV_SM_CLOCK is
among the exporter's defaults. Peers are GPUs of one gang, role and pipeline stage, so they do the same work with the
same power limit, and a phase of the job (a checkpoint, an evaluation) moves all of their clocks.

A scrape sees one moment, in which a GPU computes at the clock that its power allows, or waits at a higher one. So the
mean over WINDOW scrapes under load is compared, not a median, which would jump between the two; and a GPU is named only
if it is below by NAMED_BELOW, and below UNNAMED_BELOW by CLEAR standard errors of the noise. It is named until the mean
is above UNNAMED_BELOW. What healthy GPUs of one model differ by is less: Sinha et al., "Not All GPUs Are Created Equal"
(SC 2022), found 8 % between the GPUs of a model, and outliers up to 22 %, which are worth a name.

What it cannot tell: a rank that is slow for another cause (host, disk, network) has no low clock; one with more work
than its peers waits less at the high clock, and is lower by a little.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

CLOCK, BUSY = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL"
CLOCK_FIGURES = frozenset({CLOCK, BUSY})
LOADED = 90.0
"""Percent of utilisation from which on a clock counts."""
MOST_MHZ = 10_000.0
WINDOW = 60
"""Scrapes: a quarter of an hour of one every 15 seconds."""
AT_LEAST = 36
"""Scrapes of these under load."""
PEERS = 3
NAMED_BELOW = 1 / 1.15
UNNAMED_BELOW = 1 / 1.08
CLEAR = 5.0
LEAST_SIGMA = 1e-3
REASON_NAMES = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
REASONS = {0x20: "heat", 0x40: "heat", 0x80: "the power brake", 0x8: "the hardware"}
"""NVML's clock event reasons by which a GPU is slowed; a software power cap is usual under load."""


@dataclass(frozen=True, slots=True)
class ClockMarks:
    """Of each GPU: whether it is to be named, whether one that is named stays so, and its clock over its peers'.

    ratio is 1 where a GPU is not compared.
    """

    starts: BoolArray
    stays: BoolArray
    ratio: FloatArray
    compared: int


def loaded_clock(signs: Mapping[str, float]) -> float:
    """The SM clock of a GPU in MHz; NaN where it is not under load or does not tell one that can be."""
    clock, busy = signs.get(CLOCK, 0.0), signs.get(BUSY, 0.0)
    return clock if 0 < clock < MOST_MHZ and LOADED <= busy <= 100 else np.nan


def slowed_by(signs: Mapping[str, float]) -> str:
    """What a GPU says that slows it now; "" where it says nothing of that."""
    bits = next((int(signs[name]) for name in REASON_NAMES if signs.get(name, -1) >= 0), 0)
    return next((reason for bit, reason in REASONS.items() if bits & bit), "")


def clock_marks(clocks: FloatArray) -> ClockMarks:
    """Judge the GPUs of one group by their clocks[scrape, gpu] of a window; NaN where one was not under load."""
    count = np.count_nonzero(~np.isnan(clocks), axis=0)
    known = np.flatnonzero(count >= AT_LEAST)
    gpus = clocks.shape[1]
    starts, stays, ratio = np.zeros(gpus, bool), np.zeros(gpus, bool), np.ones(gpus)
    if len(known) > PEERS:
        logs = np.log(clocks[:, known])
        level, sigma = np.nanmean(logs, axis=0), np.nanstd(logs, axis=0)
        below = _median_of_others(level) - level
        spread = np.maximum(np.maximum(sigma, np.median(sigma)), LEAST_SIGMA)
        healthy = -np.log(UNNAMED_BELOW)
        is_clear = below - healthy > CLEAR * spread / np.sqrt(count[known])
        starts[known] = is_clear & (below > -np.log(NAMED_BELOW))
        stays[known] = below > healthy
        ratio[known] = np.exp(-below)
    return ClockMarks(starts, stays, ratio, len(known))


def _median_of_others(level: FloatArray) -> FloatArray:
    """Of each level[gpu] the median of all others."""
    order, count = np.sort(level), len(level)
    place = np.argsort(np.argsort(level, kind="stable"), kind="stable")
    low, high = (count - 2) // 2, (count - 1) // 2
    median: FloatArray = (order[low + (place <= low)] + order[high + (place <= high)]) / 2
    return median
