"""`gantree simulate` and `gantree bench`: figures out of files."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
TRACE = """job_id,submit_s,duration_s,members,gpus_per_member
a,0,100,2,4
b,10,50,1,4
c,20,50,3,4
"""


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """a and b fit beside each other on three whole nodes; c needs all three."""
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_a_trace_becomes_a_summary_and_three_files(
    gantree: Gantree, complaints: Complaints, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out"
    outcome = gantree(
        "simulate", "--cluster", cluster_file, "--trace", trace_file, "--out", out, "--json"
    )
    assert (outcome.code, outcome.err) == (0, "")
    summary = outcome.json()
    assert complaints(summary, "simulate") == []
    assert (summary["jobs"], summary["finished"], summary["makespan_s"]) == (3, 3, 150.0)
    assert summary["wait_s"] == {"mean": round(80 / 3, 6), "p50": 0.0, "p99": 80.0}
    rows = list(csv.DictReader((out / "jobs.csv").read_text().splitlines()))
    assert [(row["job_id"], row["first_start_s"], row["end_s"]) for row in rows] == [
        ("a", "0", "100"), ("b", "10", "60"), ("c", "100", "150"),
    ]  # fmt: skip
    assert (out / "report.html").read_text().lower().startswith("<!doctype html>")


def test_the_same_input_gives_the_same_bytes(
    gantree: Gantree, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(trace_file.read_bytes()))
    outs = []
    for number, trace in enumerate([trace_file, trace_file, packed]):
        out = tmp_path / f"out{number}"
        words = ("--cluster", cluster_file, "--trace", trace, "--policy", "fifo", "--out", out)
        assert gantree("simulate", *words).code == 0
        outs.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert outs[0] == outs[1] == outs[2]


def test_a_bounded_run_writes_the_same_without_the_report(
    gantree: Gantree, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    """The rows come in the order of submission, whatever that of the file; jobs.csv has that of submission, too."""
    trace_file.write_text(TRACE + "d,5,10,1,4\n")
    words = ("--cluster", cluster_file, "--trace", trace_file, "--json")
    whole = gantree("simulate", *words, "--out", tmp_path / "whole").json()
    bounded = gantree("simulate", *words, "--out", tmp_path / "bounded", "--bounded").json()
    assert {key: bounded[key] for key in whole if key != "inputs"} == {
        key: whole[key] for key in whole if key != "inputs"
    }
    names = {file.name for file in (tmp_path / "bounded").iterdir()}
    assert names == {"summary.json", "jobs.csv", "timeline.csv"}
    rows = [(tmp_path / each / "jobs.csv").read_text() for each in ("whole", "bounded")]
    assert sorted(rows[0].splitlines()) == sorted(rows[1].splitlines())


def test_people_read_the_summary_and_what_did_not_finish(
    gantree: Gantree, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    trace_file.write_text(TRACE + "d,30,10,9,4\n")
    words = ("--cluster", cluster_file, "--trace", trace_file, "--out", tmp_path / "out")
    outcome = gantree("simulate", *words)
    assert outcome.code == 0
    assert "jobs            3 of 4 finished\n" in outcome.out
    assert "makespan        2m30s\n" in outcome.out
    assert outcome.err.startswith("gantree: warning: 1 of 4 jobs did not finish; ")
    limited = gantree("simulate", *words, "--limit", 2)
    assert "2 of 2 finished" in limited.out


def test_a_model_of_running_is_stated_in_the_summary_and_to_people(
    gantree: Gantree, complaints: Complaints, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    """Every node is half as fast: all takes twice as long. The seed and the digest of options are recorded."""
    model = tmp_path / "running.yaml"
    model.write_text("preset: realistic\nstragglers: {nodes: 1, speed: 0.5}\n")
    out = tmp_path / "out"
    words = ("--cluster", cluster_file, "--trace", trace_file, "--out", out, "--running", model)
    outcome = gantree("simulate", *words, "--seed", 3, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    summary = outcome.json()
    assert complaints(summary, "simulate") == []
    assert summary["makespan_s"] == 300
    assert summary["stretch"] == {"mean": 2.0, "p99": 2.0}
    assert summary["running"]["seed"] == summary["inputs"]["seed"] == 3
    assert summary["running"]["stragglers"]["speed"] == 0.5
    rows = list(csv.DictReader((out / "jobs.csv").read_text().splitlines()))
    assert (rows[0]["useful_gpu_s"], rows[0]["stretch"]) == ("800", "2")
    told = gantree("simulate", *words)
    assert "stretch         mean 2.00, p99 2.00\n" in told.out
    assert "step_time, contention, checkpoints, failures, stragglers, spot; seed 0\n" in told.out


MODELS = """
models:
  quiet: {source: made up, traffic: {compute: 1s, data: 1MB}}
  loud: {source: made up, traffic: {compute: 1ms, data: 10GB}}
"""


def test_jobs_train_what_the_trace_names_or_a_mix_draws(
    gantree: Gantree, cluster_file: Path, tmp_path: Path
) -> None:
    """The speed of jobs that send much depends on their place, drawn here; the mix gives those without a model one."""
    trace, models, mixes = (tmp_path / name for name in ("t.csv", "models.yaml", "mixes.yaml"))
    trace.write_text(
        "job_id,submit_s,duration_s,members,gpus_per_member,model\n"
        + "".join(f"q{number},{number},9,4,1,quiet\n" for number in range(4))
        + "".join(f"l{number},{100 + number},9,4,1,loud\n" for number in range(4))
        + "".join(f"d{number},{9000 + number},9,4,1,\n" for number in range(4))
    )
    models.write_text(MODELS)
    mixes.write_text('mixes: {all: {"2-": {loud: 1}}}\n')
    running = tmp_path / "running.yaml"
    running.write_text("step_time: true\n")
    words = (
        "--cluster", cluster_file, "--trace", trace, "--out", tmp_path / "out", "--running", running,
        "--policy", "blind-random", "--models", models,
    )  # fmt: skip
    named = gantree("simulate", *words, "--json")
    assert (named.code, named.err) == (0, "")
    untold = gantree("simulate", *words[:-2], "--json")
    assert "names models; without --models FILE its jobs have no traffic" in untold.err
    assert set(_stretches(tmp_path / "out")["l"]) == {1.0}
    gantree("simulate", *words, "--json")
    found = _stretches(tmp_path / "out")
    assert (set(found["q"]), set(found["d"])) == ({1.0}, {1.0})
    assert set(found["l"]) > {1.0}
    drawn = gantree("simulate", *words, "--mixes", mixes, "--mix", "all", "--json")
    assert drawn.json()["inputs"]["options"]["mix"] == "all"
    assert set(_stretches(tmp_path / "out")["d"]) > {1.0}


def _stretches(out: Path) -> dict[str, list[float]]:
    """Stretches of jobs by the first letter of their ids."""
    found: dict[str, list[float]] = {}
    for row in csv.DictReader((out / "jobs.csv").read_text().splitlines()):
        found.setdefault(row["job_id"][0], []).append(round(float(row["stretch"]), 2))
    return found


def test_models_and_mixes_that_are_not_there_are_bad_input(
    gantree: Gantree, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("job_id,submit_s,duration_s,members,gpus_per_member,model\nq,0,9,1,1,lout\n")
    models = tmp_path / "models.yaml"
    models.write_text(MODELS)
    words = ("--cluster", cluster_file, "--out", tmp_path / "out")
    unknown = gantree("simulate", *words, "--trace", trace, "--models", models)
    assert unknown.code == 2
    assert (
        "job q: model: found `lout`; allowed: the models of --models (quiet, loud)" in unknown.err
    )
    assert "`loud`" in unknown.err
    mix = gantree("simulate", *words, "--trace", trace_file, "--mix", "hevy")
    assert mix.code == 2
    assert "--mix: found `hevy`; allowed: light, measured, heavy" in mix.err
    alone = gantree("simulate", *words, "--trace", trace_file, "--models", models, "--mix", "heavy")
    assert "models of a file need a file of mixes, --mixes FILE" in alone.err


def test_a_wrong_model_of_running_is_bad_input(
    gantree: Gantree, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    model = tmp_path / "running.yaml"
    words = ("--cluster", cluster_file, "--trace", trace_file, "--out", tmp_path / "out")
    model.write_text("failures: {domains: {rack: {per_day: 1}}}\n")
    outcome = gantree("simulate", *words, "--running", model)
    assert outcome.code == 2
    assert "failures.domains: the cluster has no tier `rack`; allowed:" in outcome.err
    model.write_text("stragglers:\n  speed: fast\n")
    outcome = gantree("simulate", *words, "--running", model)
    assert outcome.code == 2
    assert "running.yaml:2: stragglers.speed: found `fast`" in outcome.err


@pytest.mark.parametrize(
    ("header", "told"),
    [("job_id,submit_s,duration_s,members", "gpus_per_member"), ("", "trace.csv")],
)
def test_a_wrong_trace_is_bad_input(
    gantree: Gantree, cluster_file: Path, tmp_path: Path, header: str, told: str
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(header)
    words = ("--cluster", cluster_file, "--trace", trace, "--out", tmp_path / "out", "--json")
    outcome = gantree("simulate", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def test_missing_files_and_unusable_directories_are_bad_input(
    gantree: Gantree, cluster_file: Path, trace_file: Path, tmp_path: Path
) -> None:
    words = ["--cluster", cluster_file, "--trace", trace_file, "--out", trace_file]
    assert gantree("simulate", *words).code == 2
    words = ["--cluster", cluster_file, "--trace", tmp_path / "none.csv", "--out", tmp_path / "out"]
    assert gantree("simulate", *words).code == 2


def test_the_bench_tells_its_figures(gantree: Gantree, complaints: Complaints) -> None:
    words = ("bench", "decisions", "--gpus", 512, "--decisions", 20, "--seed", 3)
    figures = gantree(*words, "--json").json()
    assert complaints(figures, "bench") == []
    assert (figures["gpus"], figures["decisions"]) == (512, 20)
    assert 0 < figures["median_us"] <= figures["p99_us"]
    assert gantree(*words).out.startswith("FIGURE")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gang", "--gpus 256 --members 4 --gpus-each 1 --required leaf --decisions 2 --seed 1"),
        ("fill", "--gpus 64"),
        ("refusal", "--gpus 256 --decisions 2 --seed 1"),
        ("tas", "--queues 1"),
        ("memory", "--gpus 256"),
        ("queue", "--gpus 512 --gangs 60 --events 12"),
        ("queue", "--gpus 512 --gangs 60 --events 1"),
        ("reclaim", "--gpus 128"),
    ],
)
def test_each_bench_prints_what_its_schema_says(
    gantree: Gantree, complaints: Complaints, kind: str, words: str
) -> None:
    figures = gantree("bench", kind, *words.split(), "--json").json()
    assert complaints(figures, f"bench-{kind}") == []


def test_times_beyond_all_bounds_are_bad_input(
    gantree: Gantree, cluster_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE.replace("a,0,100", "a,1e308,1e308"))
    outcome = gantree("simulate", "--cluster", cluster_file, "--trace", path, "--out", tmp_path)
    assert outcome.code == 2
    assert f"{path}:2: submit_s: found `1e308`; allowed: seconds, 0 or more and at most 1e12" in (
        outcome.err
    )
