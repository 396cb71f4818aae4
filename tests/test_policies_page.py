"""The page about policies: its worked example comes out as its commands make it, and it tells of all presets."""

import re
from pathlib import Path

import pytest

from gantree.cli.policies import policy_of
from gantree.formats import read_cluster, read_policy, read_trace
from gantree.formats.policies import PRESET_NAMES
from gantree.sim.results import Result
from gantree.sim.run import simulate

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
RUNS: list[tuple[str, str, str, str]] = re.findall(
    r"^gantree simulate --cluster (\S+) --trace (\S+) --policy (\S+) --out out/(\S+)$", PAGE, re.M
)
HEADS = {
    "`first-fit`": "first-fit",
    "`gantree`": "gantree",
    "two teams": "two-teams",
    "cells": "cells",
}


def told() -> dict[str, dict[str, float]]:
    """Minutes that the table says each job waits, by the name of the run; `sweep-1` to `-4` are four jobs."""
    _, _, table = PAGE.partition("| job | queue |")
    rows = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()]
    runs = [HEADS[head] for head in rows[0][-len(HEADS) :]]
    waits: dict[str, dict[str, float]] = {run: {} for run in runs}
    for name, *cells in rows[2:]:
        jobs = [f"sweep-{n}" for n in range(1, 5)] if " to " in name else [name.strip("`")]
        for run, cell in zip(runs, cells[-len(HEADS) :], strict=True):
            waits[run] |= dict.fromkeys(jobs, float(cell))
    return waits


def outcome(cluster: str, trace: str, policy: str) -> Result:
    site = read_cluster((ROOT / cluster).read_text(encoding="utf-8"), cluster)
    rules = policy_of(policy) if policy in PRESET_NAMES else policy_of(str(ROOT / policy))
    return simulate(site, read_trace(ROOT / trace), rules)


@pytest.mark.parametrize(("cluster", "trace", "policy", "run"), RUNS, ids=[run for *_, run in RUNS])
def test_the_worked_example_goes_as_told(cluster: str, trace: str, policy: str, run: str) -> None:
    result = outcome(cluster, trace, policy)
    assert {job.job_id: (job.wait_s or 0.0) / 60 for job in result.jobs} == told()[run]
    assert result.summary()["gpu_hours_lost"] == 0


def test_the_page_runs_every_column_of_its_table() -> None:
    assert [run for *_, run in RUNS] == list(HEADS.values()) == list(told())


def test_the_policy_on_the_page_is_the_one_in_the_examples() -> None:
    (written,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    example = (ROOT / "examples" / "policy-two-teams.yaml").read_text(encoding="utf-8")
    assert read_policy(written, "docs/policies.md") == read_policy(example, "policy-two-teams.yaml")


def test_the_page_tells_of_every_preset() -> None:
    _, _, table = PAGE.partition("| preset |")
    rows = re.findall(r"^\| `([a-z-]+)` \|", table.partition("\n\n")[0], re.M)
    assert rows == list(PRESET_NAMES)
