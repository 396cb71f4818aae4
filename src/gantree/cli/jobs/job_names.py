"""The default name of a job: that of the script or program that it runs."""

import re
from collections.abc import Sequence
from pathlib import PurePath

INTERPRETER = re.compile(r"(python|pypy|bash|sh|perl|ruby|node)[0-9.]*")
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 63


def name_of(command: Sequence[str]) -> str:
    """A job's name after the script that an interpreter is to run, else after the program."""
    program = PurePath(command[0])
    is_script = (
        len(command) > 1
        and INTERPRETER.fullmatch(program.name) is not None
        and not command[1].startswith("-")
    )
    stem = PurePath(command[1]).stem if is_script else program.stem
    return NOT_IN_A_NAME.sub("-", stem).strip("-._")[:LONGEST_NAME] or "run"
