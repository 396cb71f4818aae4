"""Errors of parsers: all problems at once, up to a limit."""

from collections.abc import Sequence

from gantree.model.errors import BadFields, Problem

MAX_PROBLEMS = 100
"""A text with more is none of the kind that it was given for."""


def refuse(problems: Sequence[Problem]) -> None:
    """Raise BadFields if there is any problem."""
    if problems:
        raise BadFields(problems[:MAX_PROBLEMS])
