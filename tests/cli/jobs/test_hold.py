"""`gantree hold` and `gantree release` against a real daemon."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon

Gantree = Callable[..., Any]
CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with Daemon(tmp_path / "state", CLUSTER) as running:
        monkeypatch.setenv("GANTREE_STATE", str(running.state_dir))
        yield running


def test_jobs_are_held_and_released_and_a_refusal_spares_the_others(
    gantree: Gantree,
    daemon: Daemon,
    job_file: Callable[..., Path],
    complaints: Callable[[Any, str], list[str]],
) -> None:
    gantree("submit", job_file("big", 2, 4))  # never starts: there is one node
    gantree("submit", job_file("big2", 2, 4))
    held = gantree("hold", "big", "nobody", "big2")
    assert (held.code, held.out) == (1, "big is held\nbig2 is held\n")
    assert "there is no job nobody" in held.err
    again = gantree("hold", "big", "--json")
    assert (again.code, again.json()) == (0, {"held": ["big"]})
    assert complaints(again.json(), "hold") == []
    assert [row["held"] for row in gantree("jobs", "--json").json()["jobs"]] == [True, True]
    released = gantree("release", "big", "--json")
    assert (released.code, released.json()) == (0, {"released": ["big"]})
    assert complaints(released.json(), "release") == []
    twice = gantree("release", "big", "big2")
    assert (twice.code, twice.out) == (1, "big2 is released\n")
    assert "big is not held: it is pending" in twice.err
