"""A policy that a cluster cannot hold: refused in the same words by all who are given both."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

Gantree = Callable[..., Any]
JobFile = Callable[..., Path]
SOON_S = 60.0
POLICY = """\
preset: gantree
queues:
  - name: product
    guarantee: {gpus: {H100: 4}}
  - name: research
    queues:
      - {name: nlp, cells: {node: 5}}
  - {name: rest, guarantee: {gpus: 20}}
"""


@pytest.fixture
def told(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, tmp_path: Path
) -> Callable[..., Any]:
    """Run a command with a policy, by the words that it takes one with."""
    policy, trace = tmp_path / "p.yaml", tmp_path / "t.csv"
    policy.write_text(POLICY)
    trace.write_text("job_id,submit_s,duration_s,members,gpus_per_member\na,0,10,1,1\n")
    files: dict[str, list[object]] = {
        "place": [cluster_file, job_file("j", 1, 1)],
        "what-if": [cluster_file, job_file("j", 1, 1)],
        "simulate": ["--cluster", cluster_file, "--trace", trace, "--out", tmp_path / "out"],
        "up": ["--cluster", cluster_file, "--state", tmp_path / "state"],
    }

    def run(command: str) -> Any:
        """A daemon that starts all the same would run for ever: SIGTERM stops it after a while."""
        timer = Timer(SOON_S, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        try:
            return gantree(command, *files[command], "--policy", policy)
        finally:
            timer.cancel()

    return run


@pytest.mark.parametrize("command", ["place", "what-if", "simulate", "up"])
def test_what_the_cluster_cannot_hold_is_told_by_line_and_field(
    told: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    outcome = told(command)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines() == [
        f"gantree: {tmp_path}/p.yaml:4: queues[0].guarantee.gpus.H100: no node has this model; "
        "models here: H100-80GB. Did you mean `H100-80GB`?",
        f"gantree: {tmp_path}/p.yaml:7: queues[1].queues[0].cells.node: 5 cells of tier node do not fit cluster "
        "two-leaves beside the cells listed before (whole domains of that tier in all: 4); own fewer cells, "
        "or narrower ones",
        f"gantree: {tmp_path}/p.yaml:8: queues[2].guarantee.gpus: GPUs guaranteed altogether: 24 (product 4, rest 20), "
        "and cluster two-leaves has 16; guarantee less, or take a larger cluster",
    ]


def test_a_policy_that_the_cluster_holds_is_taken(told: Callable[..., Any], tmp_path: Path) -> None:
    good = POLICY.replace("H100: 4", "H100-80GB: 4").replace("node: 5", "node: 1")
    for command in ("place", "what-if", "simulate"):
        (tmp_path / "p.yaml").write_text(good.replace("gpus: 20", "gpus: 8"))
        assert told(command).code == 0


def test_cells_and_guarantees_are_held_against_the_cluster_together(
    told: Callable[..., Any], tmp_path: Path
) -> None:
    good = POLICY.replace("H100: 4", "H100-80GB: 4").replace("node: 5", "node: 1")
    (tmp_path / "p.yaml").write_text(good.replace("gpus: 20", "gpus: 12"))
    assert told("place").err == (
        f"gantree: {tmp_path}/p.yaml:8: queues[2].guarantee.gpus: GPUs guaranteed altogether: 20 (product 4, "
        "research/nlp 4 in cells, rest 12), and cluster two-leaves has 16; guarantee less, own fewer cells, or take "
        "a larger cluster\n"
    )
