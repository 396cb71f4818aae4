"""How many examples and which seeds a test gets: few and fixed in the suite, many and new in `make soak`.

    @settings(max_examples=examples(60))                # of Hypothesis
    @pytest.mark.parametrize("seed", seeds(40))         # random lives
    @pytest.mark.parametrize("order", sampled(list(permutations("abcd")), 3))     # every third; all in a soak
    @pytest.mark.soak                                   # a test for `make soak` alone

GANTREE_SOAK is how many times the examples of the suite a soak tries. GANTREE_SOAK_SEED makes them other ones in each
soak; all workers of a run have to agree on it.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
IN_THE_SUITE = 0.1
"""The part of the examples that a test names which every run tries."""
FEWEST, MOST = 4, 15
TIMES = int(os.environ.get("GANTREE_SOAK", "0"))
IS_SOAK = TIMES > 0
FIRST_SEED = int(os.environ.get("GANTREE_SOAK_SEED", "0"))


def examples(wanted: int, fewest: int = FEWEST) -> int:
    """How many of the examples that a test names this run tries.

    fewest: a test with many parameters needs less for each of them.
    """
    in_the_suite = min(max(round(wanted * IN_THE_SUITE), fewest), MOST, wanted)
    return in_the_suite * TIMES if IS_SOAK else in_the_suite


def seeds(wanted: int, fewest: int = FEWEST) -> range:
    """The seeds of so many random lives: from 0 in the suite, from GANTREE_SOAK_SEED in a soak."""
    return range(FIRST_SEED, FIRST_SEED + examples(wanted, fewest))


def sampled(cases: Sequence[T], every: int) -> Sequence[T]:
    """Every so many-th of all cases in the suite; all of them in a soak."""
    return cases if IS_SOAK else cases[::every]
