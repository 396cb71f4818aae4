"""How many examples a property is tried on: few in every run of the tests, many times as many in `make long-test`."""

import os

_TIMES = int(os.environ.get("GANTREE_EXAMPLES_TIMES", "1"))


def examples(usual: int) -> int:
    """For max_examples of Hypothesis: so many, times what the environment asks for."""
    return usual * _TIMES
