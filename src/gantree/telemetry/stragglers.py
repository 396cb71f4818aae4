"""Names the ranks of a gang whose own time of a step is longer, or varies more, than that of their peers.

Compared is each rank's own time before it enters the collective, step by step, with the median of its peers: the ranks
of the same role and pipeline stage, which do the same work. So what slows all ranks of a step (a checkpoint, a slow
file system) names nobody, and stages that differ by design are not compared with each other. Ranks of one tensor group
wait for each other within the step: where collectives of that group lie in the measured time, a slow rank slows its
whole group, and all of it is named.

A rank is *slow* if over the last WINDOW steps the median of its ratio is above NAMED_ABOVE and AT_LEAST_STEPS of them
are above UNNAMED_BELOW; and if that is clear of the noise: CLEAR times the standard error of the median, from the
median absolute deviation (MAD) of the rank or of the median rank of its group, whichever is larger. It is named until
the median is below UNNAMED_BELOW. Where steps vary by a tenth or more (uneven sequences), only the LONG_WINDOW has
enough of them to be clear of the noise; it is judged in the same way.

*Jitter* is a MAD over LONG_WINDOW steps above JITTER_NAMED_ABOVE times that of the median rank and above
JITTER_AT_LEAST; it needs a group of four, because among fewer nobody knows who varies.

All is a function of the reported steps, without memory: the same reports name the same ranks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

WINDOW = 16
"""Steps over which a rank is judged as slow."""
LONG_WINDOW = 64
"""Steps over which it is judged, too, and over which jitter is."""
LONG_EVERY = 8
"""Steps from one look at a long window to the next: it changes slowly, and a look at each would be most of the cost."""
NAMED_ABOVE = 1.15
UNNAMED_BELOW = 1.08
"""Ratios of the own time to that of the peers."""
AT_LEAST_STEPS = 10
CLEAR = 6.0
"""Standard errors."""
MAD_TO_SIGMA = 1.4826
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, for normal noise."""
JITTER_NAMED_ABOVE = 3.0
JITTER_UNNAMED_BELOW = 2.0
JITTER_AT_LEAST = 0.05
"""A relative spread below this costs nobody anything."""
JITTER_PEERS = 4
LEAST_SIGMA = 1e-3
"""No spread is compared with less than this."""

SLOW, JITTER, CLOCK = "slow", "jitter", "clock"
SIGNS = (SLOW, JITTER, CLOCK)
"""The last is that of a GPU with a low clock among its peers (`slow_clocks`)."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that is named. sign: SLOW or JITTER.

    ratio is its own time, for JITTER the spread of it, over that of its peers now; steps is for how many steps in a row
    it has been named, at least. peers: ranks that it was compared with.
    """

    rank: int
    sign: str
    ratio: float
    steps: int
    peers: int


@dataclass(frozen=True, slots=True)
class Marks:
    """After each window[window, rank]: whether a rank is to be named, and whether one that is named stays so.

    ratio[rank] is that of the last window; every is the number of steps from one window to the next.
    """

    starts: BoolArray
    stays: BoolArray
    ratio: FloatArray
    every: int = 1

    def steps_named(self) -> IntArray:
        """Return for how many steps each rank has been named after the last window; 0: it is not."""
        steps = np.zeros(self.starts.shape[1], dtype=np.int64)
        for starting, staying in zip(self.starts, self.stays, strict=True):
            steps = np.where(staying & ((steps > 0) | starting), steps + self.every, 0)
        return steps


def stragglers(
    own_s_of_step: Sequence[dict[int, float]], ranks: Sequence[int], groups: Iterable[Sequence[int]]
) -> tuple[Straggler, ...]:
    """Return who is named after the newest step, by rank.

    own_s_of_step gives the own times of each of ranks by step, in seconds; groups are positions in these sequences.
    """
    found = []
    for group in groups:
        steps = sorted(set.intersection(*(set(own_s_of_step[each]) for each in group)))
        own_s = np.array([[own_s_of_step[each][step] for each in group] for step in steps])
        if len(group) > 1 and len(steps) >= WINDOW:
            found += named(own_s, [ranks[each] for each in group])
    return tuple(sorted(found, key=lambda each: each.rank))


def named(own_s: FloatArray, ranks: Sequence[int]) -> list[Straggler]:
    """Return who is named of a group after the last step of own_s[step, rank], of 2 ranks and WINDOW steps or more."""
    ratio = log_ratio(own_s)
    found = _named(SLOW, slow_marks(ratio, WINDOW, every=1), ranks)
    if len(own_s) >= LONG_WINDOW:
        found = _joined(found, _named(SLOW, slow_marks(ratio, LONG_WINDOW, LONG_EVERY), ranks))
    if len(own_s) >= LONG_WINDOW and len(ranks) >= JITTER_PEERS:
        found = _joined(found, _named(JITTER, jitter_marks(ratio), ranks))
    return found


def _joined(found: list[Straggler], more: list[Straggler]) -> list[Straggler]:
    """One name for each rank: the first that was found."""
    known = {each.rank for each in found}
    return [*found, *(each for each in more if each.rank not in known)]


def _named(sign: str, marks: Marks, ranks: Sequence[int]) -> list[Straggler]:
    steps_of_rank = marks.steps_named().tolist()
    return [
        Straggler(rank, sign, ratio, steps, len(ranks) - 1)
        for rank, ratio, steps in zip(ranks, marks.ratio.tolist(), steps_of_rank, strict=True)
        if steps
    ]


def stage_of(rank: int, world_size: int, parallelism: Iterable[tuple[str, int]]) -> int:
    """The pipeline stage of a rank; 0 where the parallelism is not that of so many ranks.

    parallelism is (axis, ways) in the order in which ranks count, the fastest axis first.
    """
    ways = dict(parallelism)
    if "data" in ways:
        ways["data"] //= ways.get("expert", 1)
    if "pipeline" not in ways or prod(ways.values()) != world_size:
        return 0
    axes = list(ways)
    stride = prod(ways[axis] for axis in axes[: axes.index("pipeline")])
    return rank // stride % ways["pipeline"]


def log_ratio(own_s: FloatArray) -> FloatArray:
    """Return the logarithm of each own time[step, rank] over the median of its peers in that step."""
    ratio: FloatArray = np.log(own_s) - _median_of_peers(np.log(own_s))
    return ratio


def _median_of_peers(values: FloatArray) -> FloatArray:
    """Of each value[step, rank] the median of all others of its step."""
    count = values.shape[1]
    order = np.sort(values, axis=1)
    place = np.argsort(np.argsort(values, axis=1, kind="stable"), axis=1, kind="stable")
    low, high = (count - 2) // 2, (count - 1) // 2
    middle = [np.take_along_axis(order, each + (place <= each), axis=1) for each in (low, high)]
    median: FloatArray = (middle[0] + middle[1]) / 2
    return median


def slow_marks(ratio: FloatArray, window: int, every: int) -> Marks:
    """Return which ranks are slow, from the log ratio[step, rank] of a window or more, at every so many steps."""
    windows = _windows(ratio, window, every)
    level = np.median(windows, axis=2)
    at_least = AT_LEAST_STEPS / WINDOW * window
    above = np.count_nonzero(windows > np.log(UNNAMED_BELOW), axis=2) >= at_least
    error = MEDIAN_ERROR * _spread(windows) / np.sqrt(window)
    starts = above & (level > np.log(NAMED_ABOVE)) & (level > CLEAR * error)
    return Marks(starts, level >= np.log(UNNAMED_BELOW), np.exp(level[-1]), every)


def jitter_marks(ratio: FloatArray) -> Marks:
    """Return which ranks vary more than others, from the log ratio[step, rank] of LONG_WINDOW steps or more."""
    sigma = _sigma(_windows(ratio, LONG_WINDOW, LONG_EVERY))
    usual = np.maximum(np.median(sigma, axis=1, keepdims=True), LEAST_SIGMA)
    starts = (sigma > JITTER_NAMED_ABOVE * usual) & (sigma > JITTER_AT_LEAST)
    return Marks(starts, sigma > JITTER_UNNAMED_BELOW * usual, (sigma / usual)[-1], LONG_EVERY)


def _windows(ratio: FloatArray, window: int, every: int) -> FloatArray:
    """The windows[window, rank, step] that end every so many steps, the last with the last step."""
    newest_first: FloatArray = sliding_window_view(ratio, window, axis=0)[::-every]
    return newest_first[::-1]


def _sigma(windows: FloatArray) -> FloatArray:
    """Robust standard deviations[window, rank] over the last axis."""
    middle = np.median(windows, axis=2, keepdims=True)
    sigma: FloatArray = MAD_TO_SIGMA * np.median(np.abs(windows - middle), axis=2)
    return sigma


def _spread(windows: FloatArray) -> FloatArray:
    """Of each rank its own spread, or that of the median rank where that is larger."""
    sigma = _sigma(windows)
    spread: FloatArray = np.maximum(sigma, np.median(sigma, axis=1, keepdims=True))
    return spread
