"""The page about policies: its worked example comes out as its commands make it, and it tells of all presets."""

import re
from pathlib import Path

import pytest

from gantree.cli.input.policies import policy_of
from gantree.formats import read_cluster, read_policy, read_trace
from gantree.formats.policy.reader import PRESET_NAMES
from gantree.formats.traces import read_trace_text
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
RECIPES: list[tuple[str, str]] = re.findall(
    r"^\*\*(.*?)\*\*.*?^```yaml\n(.*?)^```",
    PAGE.partition("## Recipes")[2].partition("\n## ")[0],
    re.DOTALL | re.MULTILINE,
)
OF_TEAMS = """\
job_id,submit_s,duration_s,members,gpus_per_member,queue,user,priority
a1,0,3000,1,8,a,ann,research
a2,0,3000,1,8,a,ann,batch
a3,0,3000,1,8,a,bob,research
a4,0,3000,1,8,a,bob,batch
b,900,600,2,8,b,kim,serving
"""
COMES = {  # recipe -> jobs of a that start at once, those that are stopped for b, and when b starts
    "Two teams, half each; each borrows what the other leaves idle.": ("1234", "34", 900),
    "`a` borrows nothing": ("12", "", 900),
    "`b` lends nothing.": ("12", "", 900),
    "A cap on each user of `a`": ("13", "", 900),
    "A hard cap on a team.": ("123", "", 3000),
    "Serving stops batch and nothing else.": ("1234", "24", 900),
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
    _, _, section = PAGE.partition("## A worked example")
    written = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0]
    example = (ROOT / "examples" / "policy-two-teams.yaml").read_text(encoding="utf-8")
    assert read_policy(written, "docs/policies.md") == read_policy(example, "policy-two-teams.yaml")


def test_the_page_tells_of_every_preset() -> None:
    _, _, table = PAGE.partition("| preset |")
    rows = re.findall(r"^\| `([a-z-]+)` \|", table.partition("\n\n")[0], re.M)
    assert rows == list(PRESET_NAMES)


@pytest.mark.parametrize(("recipe", "text"), RECIPES, ids=[recipe for recipe, _ in RECIPES])
def test_a_recipe_does_what_is_told_of_it(recipe: str, text: str) -> None:
    at_once, stopped, starts_s = COMES[recipe]
    trace = OF_TEAMS
    if not recipe.startswith("Serving"):
        trace = re.sub(r"(?<=,)(research|serving)$", "batch", trace, flags=re.MULTILINE)
    site = read_cluster((ROOT / "examples" / "four-dgx.yaml").read_text(encoding="utf-8"), "site")
    jobs = read_trace_text(trace.splitlines(keepends=True), "trace")
    result = simulate(site, jobs, read_policy(text, recipe))
    found = {job.job_id: job for job in result.jobs}
    assert [n for n in "1234" if found[f"a{n}"].wait_s == 0] == list(at_once)
    assert [n for n in "1234" if found[f"a{n}"].preemptions] == list(stopped)
    assert found["b"].wait_s == starts_s - 900
    assert all(job.outcome == "succeeded" for job in result.jobs)


def test_every_recipe_is_tried() -> None:
    assert [recipe for recipe, _ in RECIPES] == list(COMES)


def test_the_page_says_who_preempts_whom() -> None:
    _, _, section = PAGE.partition("## Who preempts whom")
    text = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0]
    rules = read_policy(text, "docs/policies.md")
    assert rules.preemption.who == {"serving": ("batch",)} and not rules.preemption.across
    assert set(rules.priorities) == {"research", "batch", "production", "serving"}
