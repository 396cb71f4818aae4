"""What the list of jobs says of the check before the start."""

from typing import Any

import pytest

from gantree.cli.jobs.job_columns import check_notes

FELL_BACK = "NCCL fell back from RDMA to sockets (channels over NET/Socket (2))"


def row(phase: str, state: str, sentence: str, *warnings: str) -> dict[str, Any]:
    return {
        "phase": phase,
        "check": {"state": state, "sentence": sentence, "warnings": [*warnings]},
    }


@pytest.mark.parametrize(
    ("told", "notes"),
    [
        ({"phase": "running"}, []),
        ({"phase": "running", "check": None}, []),
        (row("starting", "checking", "checking its links, 12 s of 60 s"), ["checking its links, 12 s of 60 s"]),
        (row("running", "passed", "passed"), []),
        (row("running", "passed", f"passed; {FELL_BACK}", FELL_BACK), [FELL_BACK]),
        (row("running", "short", "links are slower"), ["links are slower"]),
    ],
)  # fmt: skip
def test_notes(told: dict[str, Any], notes: list[str]) -> None:
    assert check_notes(told) == notes
