"""`gantree sweep`: a grid out of a file, its table and files, and its exit codes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
TRACE = "job_id,submit_s,duration_s,members,gpus_per_member\na,0,100,2,4\nb,10,50,1,4\n"


@pytest.fixture
def sweep_file(cluster_file: Path, tmp_path: Path) -> Path:
    (tmp_path / "trace.csv").write_text(TRACE)
    path = tmp_path / "sweep.yaml"
    path.write_text(
        f"clusters: {cluster_file.name}\ntraces: trace.csv\npolicies: [fifo, gantree]\n"
    )
    return path


def test_a_grid_becomes_a_table_and_a_page(
    gantree: Gantree, complaints: Complaints, sweep_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    outcome = gantree("sweep", sweep_file, "--out", out, "--processes", 1)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[1].split() == ["FIGURE", "fifo", "gantree"]
    assert (out / "compare.html").read_text().startswith("<!doctype html>")
    told = gantree("sweep", sweep_file, "--out", out, "--json").json()
    assert complaints(told, "sweep") == []
    assert [planned["policy"] for planned in told["runs"]] == ["fifo", "gantree"]


def test_a_simulation_that_fails_is_an_error_at_the_end(
    gantree: Gantree, sweep_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE + "c,0,soon,1,4\n")
    outcome = gantree("sweep", sweep_file, "--out", tmp_path / "out", "--processes", 1)
    assert outcome.code == 1
    assert outcome.err.endswith("gantree: 2 of 2 simulations failed\n")
    assert "trace.csv:4: duration_s" in outcome.err


def test_a_wrong_sweep_file_is_bad_input(
    gantree: Gantree, sweep_file: Path, tmp_path: Path
) -> None:
    sweep_file.write_text(sweep_file.read_text() + "polices: x\n")
    outcome = gantree("sweep", sweep_file, "--out", tmp_path / "out")
    assert outcome.code == 2
    assert f"{sweep_file}:4: polices" in outcome.err
    assert not (tmp_path / "out").exists()
