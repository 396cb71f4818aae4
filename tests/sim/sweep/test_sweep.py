"""Sweeps: a grid on one process and on several, resumed after a kill at any moment, with plan that fail."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gantree.formats.sweep import read_sweep
from gantree.model.errors import BadInput, Conflict
from gantree.sim.sweep import runner
from gantree.sim.sweep.outcome import comparisons_of, write_outcome
from gantree.sim.sweep.plan import PlannedRun, plan_of
from gantree.sim.sweep.runner import KILLED, RUNS, run_sweep
from gantree.sim.sweep.worker import UNFINISHED, run_planned
from support.daemon import Program

CLUSTER = """
name: small
tiers: [leaf, node]
machines: {m4: {gpus: 4}}
nodes: [{names: "n[0-3]", machine: m4, at: {leaf: l0}}]
"""
SWEEP = """
clusters: [small.yaml]
traces: [one.csv, two.csv]
policies: [fifo, gantree]
overrides: [{name: shallow, policy: {backfill: {depth: 1}}}]
overheads: {start_s: 5}
"""
HEADER = "job_id,submit_s,duration_s,members,gpus_per_member\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with a sweep of eight simulations."""
    (tmp_path / "small.yaml").write_text(CLUSTER)
    for name, count in (("one", 12), ("two", 20)):
        rows = (f"j{n},{n},{30 + n % 7},{1 + n % 3},4\n" for n in range(count))
        (tmp_path / f"{name}.csv").write_text(HEADER + "".join(rows))
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


def plan(files: Path) -> list[PlannedRun]:
    return plan_of(read_sweep((files / "sweep.yaml").read_text(), "sweep.yaml"), files)


def run(files: Path, out: Path, processes: int = 1) -> dict[str, str]:
    grid = plan(files)
    failed = run_sweep(grid, out, processes, lambda _done, _all: None)
    write_outcome(grid, failed, comparisons_of(grid, failed, out), out)
    return failed


def contents(out: Path) -> Mapping[str, bytes]:
    """All files but the lock."""
    found = sorted(path for path in out.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def test_simulations_are_the_grid_in_order_with_names_of_their_own(files: Path) -> None:
    names = [planned.name for planned in plan(files)]
    assert names[:5] == [
        "small--one--fifo", "small--one--fifo--shallow", "small--one--gantree",
        "small--one--gantree--shallow", "small--two--fifo",
    ]  # fmt: skip
    assert len(set(names)) == len(names) == 8


def test_the_result_is_the_same_bytes_on_one_process_and_on_three(files: Path) -> None:
    assert run(files, files / "a") == {} == run(files, files / "b", processes=3)
    first = contents(files / "a")
    assert len(first) == 8 * 4 + 2
    assert contents(files / "b") == first
    told = json.loads(first["sweep.json"])
    assert [each["trace"]["name"] for each in told["comparisons"]] == ["one.csv", "two.csv"]
    names = [variant["name"] for variant in told["comparisons"][0]["variants"]]
    assert names == ["fifo", "fifo+shallow", "gantree", "gantree+shallow"]


def test_seeds_are_runs_of_one_variant_with_an_interval(files: Path) -> None:
    (files / "faults.yaml").write_text(
        "failures: {node: {per_day: 300, repair: 2m}}\ncheckpoints: {every: 10}\n"
    )
    (files / "sweep.yaml").write_text(
        "clusters: small.yaml\ntraces: two.csv\npolicies: [fifo, gantree]\n"
        "running: faults.yaml\nseeds: [1, 2, 3]\n"
    )
    grid = plan(files)
    assert [planned.name for planned in grid][:3] == [
        f"small--two--fifo--seed-{n}" for n in (1, 2, 3)
    ]
    assert run_sweep(grid, files / "out", 1, lambda _done, _all: None) == {}
    [comparison] = comparisons_of(grid, {}, files / "out")
    assert [variant.seeds for variant in comparison.variants] == [[1, 2, 3]] * 2
    makespan = comparison.entries[comparison.figures.index("makespan_s")][0].value
    assert makespan is not None and makespan.low is not None and makespan.low < makespan.mean


def test_a_finished_simulation_is_not_run_again_unless_what_it_reads_has_changed(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def note(planned: PlannedRun, out: Path, report: bool) -> str | None:
        ran.append(planned.name)
        return run_planned(planned, out, report)

    monkeypatch.setattr(runner, "run_planned", note)
    run(files, files / "out")
    assert len(ran) == 8
    ran.clear()
    run(files, files / "out")
    assert ran == []
    (files / "two.csv").write_text(HEADER + "x,0,10,1,4\n")
    run(files, files / "out")
    assert ran == [planned.name for planned in plan(files) if "two" in planned.name]
    rows = (files / "out" / RUNS / "small--two--fifo" / "jobs.csv").read_text().splitlines()
    assert len(rows) == 2


def test_a_simulation_that_fails_is_told_and_the_others_run_and_it_runs_again(files: Path) -> None:
    good = (files / "one.csv").read_text()
    (files / "one.csv").write_text(HEADER + "x,0,soon,1,4\n")
    failed = run(files, files / "out", processes=2)
    assert list(failed) == [planned.name for planned in plan(files) if "one" in planned.name]
    assert all("duration_s" in error for error in failed.values())
    told = json.loads((files / "out" / "sweep.json").read_text())
    assert [each["error"] is None for each in told["runs"]] == [False] * 4 + [True] * 4
    (files / "one.csv").write_text(good)
    assert run(files, files / "out") == {}
    assert run(files, files / "other") == {}
    assert contents(files / "out") == contents(files / "other")


def test_our_own_bug_in_one_simulation_is_told_with_its_traceback(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantree.sim.sweep.worker.simulate", lambda *_, **__: 1 / 0)
    error = run_planned(plan(files)[0], files, False)
    assert error is not None and error.startswith("Traceback") and "ZeroDivisionError" in error


def test_a_process_that_is_killed_fails_its_simulation_alone(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module that kills is found by the processes of the pool, too."""
    (files / "deadly.py").write_text(
        "import os, signal\n"
        "from gantree.sim.sweep.worker import run_planned as real\n"
        "def run_planned(planned, out, report):\n"
        "    if planned.name == 'small--one--gantree':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(planned, out, report)\n"
    )
    monkeypatch.syspath_prepend(str(files))
    import deadly  # type: ignore[import-not-found]  # written above

    monkeypatch.setattr(runner, "run_planned", deadly.run_planned)
    (files / "sweep.yaml").write_text(SWEEP.replace("[one.csv, two.csv]", "one.csv"))
    assert run(files, files / "out", processes=2) == {"small--one--gantree": KILLED}


KILLED_LATER = """
import sys
from pathlib import Path
from gantree.formats.sweep import read_sweep
from gantree.sim.sweep.plan import plan_of
from gantree.sim.sweep.runner import run_sweep
files, out, processes = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
grid = plan_of(read_sweep((files / "sweep.yaml").read_text(), "sweep.yaml"), files)
print("begins", flush=True)
run_sweep(grid, out, processes, lambda done, _: print("done", done, flush=True))
"""


@pytest.mark.parametrize(("processes", "kills"), [(1, 4), (2, 2)])
def test_killed_at_any_moment_it_goes_on_to_the_same_result(
    files: Path, processes: int, kills: int
) -> None:
    run(files, files / "whole")
    draw, out = Random(processes), files / "out"
    for _ in range(kills):
        with Program("-c", KILLED_LATER, str(files), str(out), str(processes)) as sweep:
            sweep.says("begins")
            if processes > 1:
                sweep.says("done")
            time.sleep(draw.uniform(0, 0.3))
            sweep.process.kill()
            sweep.process.wait()
        for planned in (out / RUNS).glob("small*") if (out / RUNS).exists() else ():
            assert sorted(path.name for path in planned.iterdir()) == [
                "jobs.csv", "key.json", "summary.json", "timeline.csv",
            ]  # fmt: skip
    assert run(files, out) == {}
    assert not list((out / RUNS).glob(f"{UNFINISHED}*"))
    assert contents(out) == contents(files / "whole")


@pytest.mark.parametrize("file", ["summary.json", "jobs.csv", "timeline.csv", "key.json"])
def test_a_simulation_that_ends_between_two_files_is_not_there(
    file: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it was killed when it was about to write this file."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *words: Any, **named: Any) -> Any:
        if path.name == file and "w" in mode:
            raise SystemExit
        return real(path, mode, *words, **named)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(SystemExit):
        run(files, files / "out")
    [left] = (files / "out" / RUNS).iterdir()
    assert left.name.startswith(UNFINISHED)
    monkeypatch.undo()
    assert run(files, files / "out") == {}
    assert sorted(contents(files / "out")) == sorted(files_of_a_whole_sweep(files))


def files_of_a_whole_sweep(files: Path) -> list[str]:
    names = ("key.json", "jobs.csv", "summary.json", "timeline.csv")
    inside = [f"{RUNS}/{planned.name}/{name}" for planned in plan(files) for name in names]
    return ["compare.html", "sweep.json", *inside]


def test_two_sweeps_do_not_run_in_one_directory(files: Path) -> None:
    out = files / "out"

    def meanwhile(_done: int, _all: int) -> None:
        with pytest.raises(Conflict, match="another gantree sweep"):
            run_sweep(plan(files), out, 1, lambda _d, _a: None)

    assert run_sweep(plan(files), out, 1, meanwhile) == {}
    run_sweep(plan(files), out, 1, lambda _d, _a: None)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("small.yaml", None, "small.yaml: no such file"),
        ("one.csv", None, "one.csv: no such file"),
        ("small.yaml", "name: [", "small.yaml:2"),
        ("sweep.yaml", f"{SWEEP}running: no.yaml", "no.yaml: no such file"),
        ("sweep.yaml", f"{SWEEP}running: small.yaml", "small.yaml:2"),
    ],
)
def test_files_that_cannot_be_read_are_told_before_anything_runs(
    file: str, text: str | None, told: str, files: Path
) -> None:
    if text is None:
        (files / file).unlink()
    else:
        (files / file).write_text(text)
    with pytest.raises(BadInput, match=told):
        plan(files)
