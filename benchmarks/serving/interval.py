"""The interval of a mean of few measurements, by Student's t."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Two-sided 95 % quantiles by degrees of freedom, from 1 on."""


def interval_95(values: Sequence[float]) -> tuple[float, float, float]:
    """(low, mean, high) of the mean; infinitely wide of one value."""
    mean = fmean(values)
    if len(values) < 2:
        return -math.inf, mean, math.inf
    quantile = T_95[min(len(values) - 1, len(T_95)) - 1]
    half = quantile * stdev(values) / math.sqrt(len(values))
    return mean - half, mean, mean + half
