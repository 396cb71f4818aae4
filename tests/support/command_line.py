"""The command line in the process of a test: a process of its own takes half a second to import what it needs."""

import json
from typing import Any, NamedTuple

import pytest


class Outcome(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The document on stdout."""
        return json.loads(self.out)


class CommandLine:
    """`gantree` with some words."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        """captured is how descriptors 1 and 2 are read."""
        self._captured = captured

    def __call__(self, *words: object) -> Outcome:
        """Run it to its end."""
        from gantree.cli.main import main

        self._captured.readouterr()
        code: object = 0
        try:
            main([str(word) for word in words])
        except SystemExit as left:
            code = left.code or 0
        captured = self._captured.readouterr()
        assert isinstance(code, int)
        return Outcome(code, captured.out.decode(), captured.err.decode())
