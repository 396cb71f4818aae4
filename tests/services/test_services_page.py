"""The page on services: its example is what the code answers."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "services.md"


def test_the_example_of_the_page_is_true() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert (found.attempted, found.failed) == (4, 0)
