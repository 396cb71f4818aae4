"""How often the comparison of clocks names a throttled GPU, how soon, and whom it names without one.

    python benchmarks/slow_clocks.py [--seeds 3] [--gpus 64] [--scrapes 172800] [--plants 200] [--every 1]

The default is a month of scrapes of 15 s of one gang for each seed. What a scrape sees of a healthy GPU under load:

- it computes at the clock that its power limit allows (1,400 MHz), or waits in a collective at an H100's highest one
  (1,980 MHz), by chance, for each GPU and scrape alone: exporters look at different moments. The share that computes
  wanders between 0.5 and 0.9, for all GPUs of the gang together;
- persistent differences between GPUs of a model: normal, 2 %, so that 95 % are within 4 % of the mean. Sinha et al.,
  "Not All GPUs Are Created Equal" (SC 2022), found 8 % on average between the GPUs of a model, and up to 22 %, which is
  worth a name;
- a slow wander of each GPU (temperature): an autoregressive process of 1 % with a memory of 1,000 scrapes;
- each hour six minutes without load, of all GPUs (checkpoints, evaluation), and a scrape in 100 that is missing.

Every scrape is judged, as a daemon does. Throttled GPUs are planted one by one at random moments, in the same noise:
0.8 of the clock in both phases, although a GPU that holds up the others waits less than they do.
"""

import argparse
import json

import numpy as np

from gantree.telemetry.slow_clocks import WINDOW, FloatArray, clock_marks

COMPUTES_MHZ, WAITS_MHZ = 1400.0, 1980.0
PLANTED = 0.8
FOLLOWED = 120
"""Scrapes of a planted GPU."""


def healthy(random: np.random.Generator, scrapes: int, gpus: int) -> FloatArray:
    """Clocks[scrape, gpu] of a gang with the noise of the module's text, in MHz; NaN without load."""
    hours = np.arange(scrapes)[:, None]
    share = 0.7 + 0.2 * np.sin(hours / 1500.0 + random.uniform(0, 6.28))
    computes = random.random((scrapes, gpus)) < share
    offset = random.normal(0, 0.02, gpus)
    clocks: FloatArray = np.where(computes, COMPUTES_MHZ, WAITS_MHZ) * np.exp(
        offset + _wander(random, scrapes, gpus)
    )
    clocks[np.arange(scrapes) % 240 < 24] = np.nan
    clocks[random.random((scrapes, gpus)) < 0.01] = np.nan
    return clocks


def _wander(random: np.random.Generator, scrapes: int, gpus: int) -> FloatArray:
    """An autoregressive process[scrape, gpu] of 1 %, by its points at every hundredth scrape."""
    keeps = np.exp(-0.1)
    points = random.normal(0, 0.01, (scrapes // 100 + 2, gpus))
    for number in range(1, len(points)):
        points[number] = keeps * points[number - 1] + np.sqrt(1 - keeps**2) * points[number]
    at = np.arange(scrapes) / 100
    low, part = at.astype(int), (at % 1)[:, None]
    wander: FloatArray = points[low] * (1 - part) + points[low + 1] * part
    return wander


def false_names(clocks: FloatArray, every: int) -> int:
    """How many GPUs any look at a healthy run names, one after every so many scrapes."""
    named = np.zeros(clocks.shape[1], bool)
    for end in range(WINDOW, len(clocks) + 1, every):
        named |= clock_marks(clocks[end - WINDOW : end]).starts
    return int(np.count_nonzero(named))


def scrapes_until_named(random: np.random.Generator, clocks: FloatArray) -> int | None:
    """Plant a throttled GPU; after how many of its scrapes it is named, None if not within FOLLOWED."""
    scrapes, gpus = clocks.shape
    begin, gpu = int(random.integers(WINDOW, scrapes - FOLLOWED)), int(random.integers(gpus))
    run = clocks[begin - WINDOW : begin + FOLLOWED].copy()
    run[WINDOW:, gpu] *= PLANTED
    for after in range(1, FOLLOWED + 1):
        if clock_marks(run[after : after + WINDOW]).starts[gpu]:
            return after
    return None


def one_seed(seed: int, scrapes: int, gpus: int, plants: int, every: int) -> dict[str, object]:
    """The figures of one gang over its run."""
    random = np.random.default_rng(seed)
    clocks = healthy(random, scrapes, gpus)
    until = [scrapes_until_named(random, clocks) for _ in range(plants)]
    known = sorted(each for each in until if each is not None)
    return {
        "seed": seed,
        "false_names": false_names(clocks, every),
        "planted": plants,
        "never_named": plants - len(known),
        "minutes_until_named": {
            "median": known[len(known) // 2] / 4 if known else None,
            "most": known[-1] / 4 if known else None,
        },
    }


def main() -> None:
    """Print a line of JSON for each seed."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--gpus", type=int, default=64)
    asked.add_argument("--scrapes", type=int, default=172_800)
    asked.add_argument("--plants", type=int, default=200, help="throttled GPUs in each seed")
    asked.add_argument("--every", type=int, default=1, help="look after every so many scrapes")
    told = asked.parse_args()
    for seed in range(told.seeds):
        figures = one_seed(seed, told.scrapes, told.gpus, told.plants, told.every)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
