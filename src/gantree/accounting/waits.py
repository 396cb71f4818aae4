"""The distribution of waits as counts in bins of a logarithmic scale: counts of any two add up.

Bin 0 is less than a second; each next bin is wider by a factor of 2^(1/4). So a quantile is right within 9 %.
"""

from collections.abc import Mapping
from math import ceil, floor, log2

BINS_PER_OCTAVE = 4


def bin_of(seconds: float) -> int:
    """The bin of a wait."""
    return 0 if seconds < 1.0 else 1 + floor(log2(seconds) * BINS_PER_OCTAVE)


def middle_of(place: int) -> float:
    """The geometric middle of a bin, in seconds; 0 of the first."""
    return 0.0 if place == 0 else 2.0 ** ((place - 0.5) / BINS_PER_OCTAVE)


def quantile(jobs_in_bin: Mapping[int, int], share: float) -> float | None:
    """The wait that a share of jobs did not exceed, by nearest rank; None without jobs."""
    total = sum(jobs_in_bin.values())
    rank, seen = max(1, ceil(share * total)), 0
    for place in sorted(jobs_in_bin):
        seen += jobs_in_bin[place]
        if seen >= rank:
            return middle_of(place)
    return None
