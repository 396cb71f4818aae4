"""`gantree compare` on directories that `gantree simulate` wrote."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
TRACE = "job_id,submit_s,duration_s,members,gpus_per_member\n" + "".join(
    f"j{n},{n},{30 + n},{1 + n % 3},4\n" for n in range(9)
)


@pytest.fixture
def results(gantree: Gantree, cluster_file: Path, tmp_path: Path) -> Callable[..., Path]:
    """Simulate a trace under a policy into a directory of that name."""
    trace = tmp_path / "trace.csv"

    def run(policy: str, text: str = TRACE) -> Path:
        trace.write_text(text)
        out = tmp_path / "results" / policy
        words = ("--cluster", cluster_file, "--trace", trace, "--policy", policy, "--out", out)
        assert gantree("simulate", *words).code == 0
        return out

    return run


def test_figures_stand_beside_each_other_with_differences_to_the_first(
    gantree: Gantree, results: Callable[..., Path], complaints: Complaints, tmp_path: Path
) -> None:
    first, second = results("fifo"), results("gantree")
    page = tmp_path / "compare.html"
    outcome = gantree("compare", first, second, "--out", page)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0].split() == ["FIGURE", "fifo", "gantree"]
    assert "one seed: no interval" in outcome.out
    assert page.read_text().startswith("<!doctype html>")
    told = gantree("compare", first, second, "--json").json()
    assert complaints(told, "compare") == []
    assert [variant["name"] for variant in told["variants"]] == ["fifo", "gantree"]


def test_results_of_other_traces_and_single_ones_are_bad_input(
    gantree: Gantree, results: Callable[..., Path]
) -> None:
    first = results("fifo")
    assert gantree("compare", first).code == 2
    other = results("gantree", TRACE + "x,0,1,1,1\n")
    outcome = gantree("compare", first, other)
    assert (outcome.code, outcome.out) == (2, "")
    assert "allowed: results of one trace" in outcome.err
