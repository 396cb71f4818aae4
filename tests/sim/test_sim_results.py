"""What comes out: statistics, utilisation and domains by hand, the files, and that equal input gives equal bytes."""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from math import fsum
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Allocation
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy
from gantree.sim.files import (
    columns,
    jobs_csv,
    ranges,
    seconds,
    summary,
    summary_json,
    timeline_csv,
    write,
)
from gantree.sim.measures.timeline import timeline_of
from gantree.sim.report import document
from gantree.sim.results import Result, nearest_rank, statistics
from gantree.sim.run import simulate
from gantree.sim.running.model import (
    Checkpoints,
    FailureRate,
    Failures,
    RunningModel,
    Stragglers,
)
from gantree.testing.builders import cluster

SITE = cluster(leaves=2, nodes=2, gpus=4)


def trace_job(name: str, submit_s: float, duration_s: float, members: int, gpus: int) -> TraceJob:
    return TraceJob(
        job_id=name,
        submit_s=submit_s,
        duration_s=duration_s,
        members=members,
        gpus_per_member=gpus,
        queue="q",
    )


@pytest.fixture
def result() -> Result:
    """16 GPUs; a gang over two leaves for 10 s, one job behind it, one that never fits."""
    trace = [
        trace_job("wide", 100, 10, 3, 4),
        trace_job("pair", 100, 20, 2, 4),
        trace_job("never", 100, 1, 5, 4),
    ]
    return simulate(SITE, trace, Policy())


# ----- numbers


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([7.0], 1, 7.0),
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.0),
        ([1.0, 2.0, 3.0], 50, 2.0),
        ([1.0, 2.0, 3.0], 99, 3.0),
        ([float(n) for n in range(1, 101)], 50, 50.0),
        ([float(n) for n in range(1, 101)], 99, 99.0),
        ([float(n) for n in range(1, 102)], 99, 100.0),
    ],
)
def test_percentiles_are_by_nearest_rank(
    values: list[float], percent: int, expected: float | None
) -> None:
    assert nearest_rank(values, percent) == expected


@given(st.lists(st.integers(0, 99), min_size=1).map(sorted), st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(
    values: list[int], percent: int
) -> None:
    enough = [v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values)]
    assert nearest_rank([float(v) for v in values], percent) == min(enough)


def test_statistics_are_over_unsorted_values() -> None:
    assert statistics([30.0, 10.0, 20.0]) == {"mean": 20.0, "p50": 20.0, "p99": 30.0}


def test_the_summary_by_hand(result: Result) -> None:
    """wide: 12 GPUs from 100 to 110. pair: 8 GPUs from 110 to 130, since only 4 are left beside wide."""
    assert result.summary() == {
        "jobs": 3,
        "finished": 2,
        "jct_s": {"mean": 20.0, "p50": 10.0, "p99": 30.0},
        "wait_s": {"mean": 5.0, "p50": 0.0, "p99": 10.0},
        "makespan_s": 30.0,
        "gpu_utilisation": round((12 * 10 + 8 * 20) / (16 * 30), 6),
        "domains_spanned": {"spine": 1.0, "leaf": 1.5, "node": 2.5},
        "preemptions": 0,
        "gpu_hours_lost": 0.0,
    }


def test_the_summary_of_a_run_with_failures_is_that_of_its_rows() -> None:
    """Half of the nodes are slow, processes fail; jobs take from a few hours to several days."""
    model = RunningModel(
        checkpoints=Checkpoints(3600, 5, 300),
        failures=Failures(process=FailureRate(2, 0)),
        stragglers=Stragglers(nodes=0.5, speed=0.5),
    )
    day_s = 86_400.0
    sizes = [(0.3, 1), (0.4, 2), (0.7, 1), (0.8, 1), (1.5, 3), (4.0, 2)]
    trace = [
        trace_job(f"j{number}", 1000.0 * number, days * day_s, members, 4)
        for number, (days, members) in enumerate(sizes)
    ]
    result = simulate(SITE, trace, Policy(), running=model, seed=3)
    told, rows = result.summary(), result.jobs
    stretches = sorted(row.stretch for row in rows if row.stretch is not None)
    took_s = [row.end_s - row.first_start_s for row in rows]  # type: ignore[operator]  # all have ended
    ettrs = [row.kept_for_s / s for row, s in zip(rows, took_s, strict=True) if s >= day_s]
    assert any(day_s <= s < 2 * day_s for s in took_s)
    assert 0 < len(ettrs) < len(rows)
    assert stretches[0] < stretches[-1]
    assert told["stretch"] == {
        "mean": round(geometric_mean(stretches), 6),
        "p99": round(stretches[-1], 6),
    }
    assert (told["ettr"]["jobs"], told["ettr"]["mean"]) == (
        len(ettrs),
        round(fsum(ettrs) / len(ettrs), 6),
    )
    assert told["failures"] == sum(row.failures for row in rows) > 0
    lost = fsum(row.gpu_s_lost_to_failures for row in rows) / 3600
    assert told["gpu_hours_lost_to_failures"] == round(lost, 6) > 0


def test_jobs_of_one_member_do_not_count_as_spanning_domains() -> None:
    result = simulate(SITE, [trace_job("one", 0, 1, 1, 4), trace_job("two", 0, 1, 2, 4)], Policy())
    assert result.summary()["domains_spanned"]["node"] == 2.0


def test_gpus_that_the_site_itself_holds_are_no_capacity() -> None:
    site = replace(SITE, allocations=(Allocation("old", "n0", (0, 1, 2, 3)),))
    result = simulate(site, [trace_job("rest", 0, 10, 3, 4)], Policy())
    assert (result.gpus, result.summary()["gpu_utilisation"]) == (12, 1.0)


# ----- files


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_a_row_of_jobs_csv_by_hand(result: Result) -> None:
    text = jobs_csv(result)
    assert text.splitlines()[0] == ",".join(columns(("spine", "leaf", "node")))
    wide, pair, never = rows_of(text)
    assert {key: pair[key] for key in list(pair)[:13]} == {
        "job_id": "pair", "queue": "q", "submit_s": "100", "first_start_s": "110", "end_s": "130",
        "wait_s": "10", "jct_s": "30", "attempts": "1", "gpus": "8", "domains_spine": "1",
        "domains_leaf": "1", "domains_node": "2", "placement": "n0:0-3;n1:0-3",
    }  # fmt: skip
    assert wide["domains_leaf"] == "2"
    assert (never["end_s"], never["placement"], never["outcome"]) == ("", "", "pending")
    assert never["reason"].startswith("Never fits")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 3], "0-3"), ([0, 2, 3, 5], "0,2-3,5")],
)
def test_gpus_are_written_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(None, ""), (0.0, "0"), (-0.0, "0"), (100.0, "100"), (0.1 + 0.2, "0.3"), (1e-9, "0"), (1e7, "10000000")],
)  # fmt: skip
def test_times_are_written_plainly(time_s: float | None, text: str) -> None:
    assert seconds(time_s) == text


def test_the_files_are_written_where_nothing_was(result: Result, tmp_path: Path) -> None:
    out = tmp_path / "new" / "place"
    write(result, out)
    assert sorted(path.name for path in out.iterdir()) == [
        "jobs.csv",
        "report.html",
        "summary.json",
        "timeline.csv",
    ]
    assert json.loads((out / "summary.json").read_text()) == summary(result)
    assert summary(result).items() >= result.summary().items()
    assert b"\r" not in (out / "jobs.csv").read_bytes()


def test_the_timeline_is_a_table_of_the_parts_of_the_time(result: Result) -> None:
    first, *_ = rows_of(timeline_csv(timeline_of(result, 3)))
    assert first == {
        "from_s": "100", "to_s": "110", "gpus": "16", "held_gpus": "12", "useful_gpus": "12",
        "waiting_jobs": "2", "jain_index": "1", "free_gpus_in_whole_spine": "0",
        "free_gpus_in_whole_leaf": "0", "free_gpus_in_whole_node": "4",
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_extra_all_but_the_page_is_written_and_the_reason_told(
    missing: str, result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write(result, tmp_path) is None
    document._scripts.cache_clear()
    monkeypatch.setitem(sys.modules, missing, None)
    reason = write(result, tmp_path)
    assert reason is not None and "pip install 'gantree[simulate]'" in reason
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "jobs.csv", "summary.json", "timeline.csv",
    ]  # fmt: skip


def test_a_place_that_cannot_be_written_is_named(result: Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file"):
        write(result, tmp_path / "file")


# ----- determinism

RUN = """
import sys
from gantree.policy.rules import Policy
from gantree.formats.traces import TraceJob
from gantree.sim.files import jobs_csv, summary, summary_json, timeline_csv
from gantree.sim.measures.timeline import timeline_of
from gantree.sim.report import document
from gantree.sim.report.page import page
from gantree.sim.run import simulate
from gantree.sim.running.model import (
    Checkpoints,
    FailureRate,
    Failures,
    RunningModel,
    Stragglers,
)
from gantree.testing.builders import cluster
trace = [
    TraceJob(job_id=f"j{n}", submit_s=float(n * 7 % 50), duration_s=float(5 + n * 13 % 40),
             members=1 + n % 3, gpus_per_member=1 + n % 4, queue="q",
             priority=("research", "batch", "serving")[n % 3],
             checkpoint_s=10.0 if n % 2 else None)
    for n in range(24)
]
result = simulate(cluster(leaves=2, nodes=2, gpus=4), trace, Policy())
timeline = timeline_of(result)
told = summary(result, timeline=timeline)
sys.stdout.write(summary_json(result) + jobs_csv(result) + timeline_csv(timeline))
document._scripts = str  # of the library of charts, and the dearest part
sys.stdout.write(page(result, timeline, told))
"""


def test_equal_input_gives_equal_bytes_whatever_the_hash_seed() -> None:
    def run(seed: str) -> bytes:
        environment: dict[str, Any] = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", RUN], env=environment, check=True, capture_output=True
        )
        return done.stdout

    first = run("1")
    assert b'"preemptions": 0' not in first  # the trace does exercise preemption
    assert run("2") == first


def test_summary_json_has_its_keys_in_the_documented_order(result: Result) -> None:
    assert list(json.loads(summary_json(result))) == [
        "jobs", "finished", "jct_s", "wait_s", "makespan_s", "gpu_utilisation", "domains_spanned",
        "preemptions", "gpu_hours_lost", "goodput", "jain_index",
        "free_gpus_in_whole_domains", "gpu_hours_lost_by_cause", "energy_kWh", "energy_kWh_idle", "cost_USD",
        "cost_USD_idle",
    ]  # fmt: skip
