"""Means over seeds with 95 % confidence intervals, and differences paired by seed. Student's t; pure arithmetic.

Runs with the same seed meet the same random failures, so a difference is taken seed by seed first; its interval is that
of the mean of these differences (paired t). With one seed there is no interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

CONFIDENCE = 0.95
METHOD = "Student's t over seeds, 95 %; differences are paired by seed"
NO_INTERVAL = "one seed: no interval"

_T_975 = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
    2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272,
)  # fmt: skip
"""The 97.5 % quantile of Student's t for 1 to 30 degrees of freedom (any table of it)."""
_Z_975 = 1.959964


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of count values; low and high are the ends of its interval, None where there is none."""

    mean: float
    low: float | None
    high: float | None
    count: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean and its interval; None of nothing."""
    count = len(values)
    if not count:
        return None
    mean = fsum(values) / count
    if count == 1:
        return Estimate(mean, None, None, 1)
    variance = fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_quantile(count - 1) * sqrt(variance / count)
    return Estimate(mean, mean - half, mean + half, count)


def difference(
    first: Mapping[int | None, float], other: Mapping[int | None, float]
) -> Estimate | None:
    """How much more `other` is than `first` on average over the seeds that both have; None if there are none."""
    return estimate([other[seed] - first[seed] for seed in first if seed in other])


def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t.

    Above the table by the expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5), right to four decimals.
    """
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2
