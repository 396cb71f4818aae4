"""How many examples a property is tried on: a part in every run of the tests, many times all in `make long-test`.

Every run draws others, so that what few examples miss today is found on another day.
"""

import os

IN_EVERY_RUN = 0.2
"""So large a part of the examples, for a suite that people run before each change."""
FEWEST = 4
_TIMES = float(os.environ.get("GANTREE_EXAMPLES_TIMES", IN_EVERY_RUN))


def examples(wanted: int) -> int:
    """For max_examples of Hypothesis: of so many, the part or the multiple that the environment asks for."""
    return max(min(FEWEST, wanted), round(wanted * _TIMES))
