"""Comparisons: which runs belong together, what is refused, figures with differences to the first, and the page."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.sim import files
from gantree.sim.compare.comparison import compare
from gantree.sim.compare.directories import read_run, read_runs
from gantree.sim.compare.page import comparison_page, entry_text
from gantree.sim.compare.variants import variants_of
from gantree.sim.inputs import CountedTrace, inputs_of
from gantree.sim.run import simulate
from gantree.testing.builders import cluster

SITE = cluster(leaves=2, nodes=2, gpus=4)
TRACE = [TraceJob(f"j{n}", n, 30 + n % 7, 1 + n % 3, 4, queue=f"q{n % 2}") for n in range(12)]


def write(
    out: Path,
    policy: str = "gantree",
    seed: int | None = None,
    *,
    site: Cluster = SITE,
    trace: list[TraceJob] | None = None,
    options: Mapping[str, Any] | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """A directory of results; change edits its summary."""
    rows = CountedTrace(TRACE if trace is None else trace)
    result = simulate(site, rows, PRESETS[policy])
    inputs = inputs_of(
        site, rows, PRESETS[policy], trace_name="t.csv", policy_name=policy, seed=seed, options=options,
    )  # fmt: skip
    files.write(result, out, inputs, report=False)
    if change is not None:
        summary = json.loads((out / "summary.json").read_text())
        change(summary)
        (out / "summary.json").write_text(json.dumps(summary))
    return out


def waits(mean: float) -> Callable[[dict[str, Any]], None]:
    return lambda summary: summary["wait_s"].update(mean=mean)


def compared(*paths: Path) -> Any:
    return compare(variants_of(read_runs(paths)))


def entry(comparison: Any, figure: str, variant: int) -> Any:
    return comparison.entries[comparison.figures.index(figure)][variant]


def test_runs_that_differ_in_their_seed_are_one_variant(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{policy}{seed}", policy, seed, change=waits(base + 100 * seed))
        for policy, base in (("fifo", 10.0), ("gantree", 5.0))
        for seed in (1, 2, 3)
    ]
    told = compared(*paths)
    assert [(variant.name, variant.seeds) for variant in told.variants] == [
        ("fifo", [1, 2, 3]),
        ("gantree", [1, 2, 3]),
    ]
    first, second = (entry(told, "wait_s mean", number) for number in (0, 1))
    assert (first.value.mean, first.difference) == (210.0, None)
    assert first.value.high - first.value.mean == pytest.approx(4.302653 * 100 / 3**0.5)
    assert (second.difference.mean, second.difference.low, second.difference.high) == (-5, -5, -5)
    assert second.percent == pytest.approx(-100 * 5 / 210)
    assert entry_text(second) == "205 ± 248 (-2.38 % ± 0)"
    assert "paired by seed" in told.note


def test_a_difference_is_in_percent_of_the_seeds_that_both_have(tmp_path: Path) -> None:
    fifo = [
        write(tmp_path / f"f{s}", "fifo", s, change=waits(w)) for s, w in ((1, 900.0), (2, 10.0))
    ]
    other = write(tmp_path / "g2", seed=2, change=waits(12.0))
    told = entry(compared(*fifo, other), "wait_s mean", 1)
    assert (told.difference.mean, told.percent) == (2, 20)


def test_one_seed_has_no_interval_and_says_so(tmp_path: Path) -> None:
    told = compared(write(tmp_path / "a", "fifo"), write(tmp_path / "b", change=waits(3.0)))
    assert told.note == "one seed: no interval"
    assert "±" not in entry_text(entry(told, "wait_s mean", 1))


def test_variants_with_equal_names_are_told_apart_by_options_or_digest(tmp_path: Path) -> None:
    options = [{"checkpoints": {"every_s": every}} for every in (600, 900)]
    paths = [write(tmp_path / str(n), options=each) for n, each in enumerate(options)]
    assert [v.name for v in variants_of(read_runs(paths))] == [
        "gantree (checkpoints.every_s=600)",
        "gantree (checkpoints.every_s=900)",
    ]

    def other(summary: dict[str, Any]) -> None:
        summary["inputs"]["policy"]["digest"] = "abcdef0123456789"

    paths = [write(tmp_path / "x"), write(tmp_path / "y", change=other)]
    names = [variant.name for variant in variants_of(read_runs(paths))]
    assert names[1] == "gantree [abcdef]" != names[0]


def test_results_of_another_cluster_or_trace_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "first")
    site = write(tmp_path / "site", site=replace(SITE, name="other"))
    trace = write(tmp_path / "trace", trace=TRACE[:-1])
    with pytest.raises(
        BadInput, match=r"site: is of cluster other .*allowed: results of one cluster"
    ):
        read_runs([first, site])
    with pytest.raises(BadInput, match=r"trace: is of trace t.csv .*allowed: results of one trace"):
        read_runs([first, trace])


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, seed=1) for name in ("a", "b")]
    with pytest.raises(BadInput, match=r"b: is of the same policy, options and seed as .*a"):
        variants_of(read_runs(paths))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "no such file"),
        ("{", "no JSON"),
        ('{"jobs": 3}', "does not say what was run"),
        ("[]", "does not say what was run"),
    ],
)
def test_what_is_no_directory_of_results_is_refused(
    text: str | None, told: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    with pytest.raises(BadInput, match=f"summary.json: .*{told}"):
        read_run(tmp_path)


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a"), write(tmp_path / "b", "fifo")]
    (paths[1] / "timeline.csv").write_text("from_s,to_s\n")
    with pytest.raises(BadInput, match=r"timeline.csv: has no column gpus"):
        comparison_page(compared(*paths))
    (paths[1] / "timeline.csv").write_text("from_s,to_s,gpus,held_gpus,waiting_jobs\n1,2,x,3,4\n")
    with pytest.raises(BadInput, match=r"timeline.csv: found 'x'; allowed: a number"):
        comparison_page(compared(*paths))


def test_the_page_shows_every_variant_over_the_others_and_is_the_same_each_time(
    tmp_path: Path,
) -> None:
    paths = [write(tmp_path / policy, policy) for policy in ("fifo", "gantree")]
    text = comparison_page(compared(*paths))
    assert text == comparison_page(compared(*paths))
    assert text.count('"fifo"') >= 4 and "wait_s mean" in text
    assert text.count('class="chart"') == 4


def test_figures_that_a_run_lacks_are_left_out_of_it_alone(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a", "fifo"), write(tmp_path / "b")]
    summary = json.loads((paths[1] / "summary.json").read_text())
    summary["cost_USD"], summary["failures"] = None, 4
    (paths[1] / "summary.json").write_text(json.dumps(summary))
    told = compared(*paths)
    failures = [entry(told, "failures", number) for number in (0, 1)]
    assert failures[0].value is None and failures[1].value.mean == 4
    assert [entry_text(each) for each in failures] == ["-", "4"]
    assert "faults" not in told.figures
