"""How often the comparison of ranks names a planted straggler, how soon, and whom it names without one.

    python benchmarks/stragglers.py [--seeds 20] [--ranks 64] [--steps 259200] [--step-s 10] [--jitter 0.03]

The default is a month of steps of 10 s of one gang for each seed. The noise of a healthy gang:

- persistent differences between GPUs of one model: normal, 2 %, so that 95 % of the ranks are within 4 % of the mean.
  Sinha et al., "Not All GPUs Are Created Equal" (SC 2022), found 8 % on average between the GPUs of a model, and up to
  22 %, which is a straggler and not noise;
- jitter of each rank and step: lognormal, 3 %; and a slow wander of each rank (temperature, clocks): an autoregressive
  process of 1 % with a memory of 1,000 steps;
- pauses of single ranks (garbage collection, data loading): one step in 500, of 1.2 to 3 times its time. Lin et al.,
  "Understanding Stragglers in Large Model Training Using What-if Analysis" (arXiv 2505.05713), name garbage collection
  and uneven sequences as causes that are no sick machine;
- stalls of all ranks (checkpoints, the file system): one step in 300, of 2 to 10 times its time, and each hour one of
  20 steps at 1.5 times.

Every window of the month is judged, as a daemon that looks after every step would (long windows every eighth); a false
name is a rank that any of them names. Stragglers of 1.3 are planted one by one at random steps and ranks, in the same
noise, and followed for FOLLOWED steps (`--followed`).
"""

import argparse
import json
from collections.abc import Iterator

import numpy as np

from gantree.telemetry import stragglers
from gantree.telemetry.stragglers import JITTER, SLOW, FloatArray

RING = 256
"""Steps that a rank keeps."""
PLANTED = 1.3
FOLLOWED = 128
"""Steps of a planted straggler."""


def healthy(
    random: np.random.Generator, steps: int, ranks: int, step_s: float, sigma: float = 0.03
) -> FloatArray:
    """Own times[step, rank] of a gang with the noise of the module's text, in seconds."""
    offset = random.normal(0, 0.02, ranks)
    wander = _wander(random, steps, ranks, sigma=0.01, memory=1000)
    jitter = random.normal(0, sigma, (steps, ranks))
    own_s = step_s * np.exp(offset + wander + jitter)
    pauses = random.random((steps, ranks)) < 1 / 500
    own_s[pauses] *= random.uniform(1.2, 3.0, np.count_nonzero(pauses))
    stalls = random.random(steps) < 1 / 300
    own_s[stalls] *= random.uniform(2.0, 10.0, (np.count_nonzero(stalls), 1))
    each_hour = max(21, round(3600 / step_s))
    own_s[np.arange(steps) % each_hour < 20] *= 1.5
    checked: FloatArray = own_s
    return checked


def _wander(
    random: np.random.Generator, steps: int, ranks: int, sigma: float, memory: float
) -> FloatArray:
    """An autoregressive process[step, rank], by its points at every tenth of its memory."""
    every = max(1, int(memory / 10))
    keeps = np.exp(-every / memory)
    points = np.empty((steps // every + 2, ranks))
    points[0] = random.normal(0, sigma, ranks)
    for number in range(1, len(points)):
        points[number] = keeps * points[number - 1]
        points[number] += random.normal(0, sigma * np.sqrt(1 - keeps**2), ranks)
    at = np.arange(steps) / every
    low = at.astype(int)
    share = (at - low)[:, None]
    wander: FloatArray = points[low] * (1 - share) + points[low + 1] * share
    return wander


def rings(own_s: FloatArray) -> Iterator[FloatArray]:
    """The rings of a run that overlap by a window, so that each window of the run is in one of them."""
    stride = RING - stragglers.LONG_WINDOW
    for end in range(RING, len(own_s) + stride, stride):
        yield own_s[max(0, end - RING) : end]


def marks_of(ratio: FloatArray) -> list[tuple[str, stragglers.Marks]]:
    """All looks at a ring of LONG_WINDOW steps or more."""
    long, every = stragglers.LONG_WINDOW, stragglers.LONG_EVERY
    return [
        (SLOW, stragglers.slow_marks(ratio, stragglers.WINDOW, every=1)),
        (SLOW, stragglers.slow_marks(ratio, long, every)),
        (JITTER, stragglers.jitter_marks(ratio)),
    ]


def named_ever(ring: FloatArray) -> set[tuple[int, str]]:
    """Who is named at any step of a ring."""
    found: set[tuple[int, str]] = set()
    ratio = stragglers.log_ratio(ring)
    for sign, marks in marks_of(ratio):
        found |= {(int(rank), sign) for rank in np.flatnonzero(marks.starts.any(axis=0))}
    return found


def false_names(own_s: FloatArray) -> dict[str, int]:
    """How often a ring of a healthy run names anybody, by sign."""
    named = [each for ring in rings(own_s) for each in named_ever(ring)]
    return {sign: sum(1 for _, known in named if known == sign) for sign in (SLOW, JITTER)}


def steps_until_named(
    random: np.random.Generator, own_s: FloatArray, followed: int = FOLLOWED
) -> int | None:
    """Plant a straggler; after how many of its steps it is named, None if not within so many."""
    steps, ranks = own_s.shape
    begin, rank = int(random.integers(RING, steps - followed)), int(random.integers(ranks))
    before = stragglers.LONG_WINDOW
    run = own_s[begin - before : begin + followed].copy()
    run[before:, rank] *= PLANTED
    ratio = stragglers.log_ratio(run)
    found = []
    for window in (stragglers.WINDOW, stragglers.LONG_WINDOW):
        starts = stragglers.slow_marks(ratio, window, every=1).starts[:, rank]
        found += [int(row) + window - before for row in np.flatnonzero(starts)]
    return min((after for after in found if after > 0), default=None)


def one_seed(
    seed: int, steps: int, ranks: int, step_s: float, plants: int, sigma: float, followed: int
) -> dict[str, object]:
    """The figures of one gang over its run."""
    random = np.random.default_rng(seed)
    own_s = healthy(random, steps, ranks, step_s, sigma)
    until = [steps_until_named(random, own_s, followed) for _ in range(plants)]
    known = sorted(each for each in until if each is not None)
    median, most = (float(np.median(known)), known[-1]) if known else (None, None)
    nearly_all = int(0.95 * plants)
    return {
        "seed": seed,
        "false_names": false_names(own_s),
        "planted": plants,
        "named_within_20": sum(each <= 20 for each in known),
        "never_named": plants - len(known),
        "steps_until_named": {
            "median": median,
            "95 %": known[nearly_all - 1] if len(known) >= nearly_all else None,
            "most": most,
        },
    }


def main() -> None:
    """Print a line of JSON for each seed."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--seeds", type=int, default=20)
    asked.add_argument("--ranks", type=int, default=64)
    asked.add_argument("--steps", type=int, default=259_200)
    asked.add_argument("--step-s", type=float, default=10.0)
    asked.add_argument("--plants", type=int, default=1000, help="stragglers planted in each seed")
    asked.add_argument("--jitter", type=float, default=0.03, help="of a step of a healthy rank")
    asked.add_argument("--followed", type=int, default=FOLLOWED, help="steps of each straggler")
    told = asked.parse_args()
    for seed in range(told.seeds):
        figures = one_seed(
            seed, told.steps, told.ranks, told.step_s, told.plants, told.jitter, told.followed
        )
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
