"""Traces as files: what is written is read again, in parts and in the order of submission."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob, open_trace, read_trace, write_trace
from gantree.formats.traces.order import sorted_by_submission
from gantree.model.errors import BadFields, BadInput
from support.examples import examples

pytest.importorskip("duckdb")

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
SECONDS = st.floats(0, 1e12)
ABOVE_ZERO = st.floats(0, 1e12, exclude_min=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)
COUNTS = st.integers(1, 10**9 - 1)
AXES = st.permutations(["tensor", "context", "data", "pipeline"])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def trace_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """All columns but job_id, in all combinations that are allowed."""
    members = draw(st.integers(1, 1000))
    part = draw(st.sampled_from(["gpus", "mig", "gpu_share"]))
    elastic = draw(st.booleans())
    sliced = draw(st.booleans())
    spread = draw(maybe(NAMES))
    return {
        "submit_s": draw(SECONDS),
        "duration_s": draw(SECONDS),
        "members": members,
        "gpus_per_member": draw(st.integers(0, 16)) if part == "gpus" else 0,
        "mig": "3g.40gb" if part == "mig" else None,
        "gpu_share": draw(st.floats(0, 1, exclude_min=True)) if part == "gpu_share" else None,
        "gpu_memory_GiB": draw(maybe(ABOVE_ZERO)) if part == "gpu_share" else None,
        "gpu": draw(TEXT) or None,
        "queue": "/".join(draw(st.lists(NAMES, min_size=1, max_size=3))),
        "user": draw(TEXT),
        "priority": draw(st.integers(-1000, 1000) | st.sampled_from(["batch", "serving"])),
        "cpus_per_member": draw(SECONDS),
        "memory_GiB_per_member": draw(SECONDS),
        "nics_per_member": draw(st.integers(0, 16)),
        "checkpoint_s": draw(maybe(ABOVE_ZERO)),
        "time_limit_s": draw(maybe(ABOVE_ZERO)),
        "expected_s": draw(maybe(ABOVE_ZERO)),
        "preemptible": draw(st.booleans()),
        "elastic_min": draw(st.integers(1, members)) if elastic else None,
        "elastic_max": members + draw(st.integers(0, 9)) if elastic else None,
        "required": draw(maybe(NAMES)),
        "preferred": draw(maybe(NAMES)),
        "slice_members": draw(COUNTS) if sliced else None,
        "slice_required": draw(NAMES) if sliced else None,
        "spread": spread,
        "spread_at_most": draw(maybe(COUNTS)) if spread else None,
        "market": draw(maybe(st.sampled_from(["on-demand", "spot", "any"]))),
        "model": draw(maybe(NAMES)),
        "parallelism": tuple((axis, draw(COUNTS)) for axis in draw(AXES)[: draw(st.integers(0, 4))]),
    }  # fmt: skip


TRACES = st.lists(trace_jobs(), max_size=6).map(
    lambda rows: [TraceJob(job_id=f"j{number}", **row) for number, row in enumerate(rows)]
)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@settings(max_examples=examples(100))
@given(jobs=TRACES)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, jobs: list[TraceJob]
) -> None:
    path = tmp_path_factory.mktemp("traces") / f"t{suffix}"
    assert write_trace(jobs, path) == len(jobs)
    assert read_trace(path) == jobs
    assert list(open_trace(path)) == sorted(jobs, key=lambda job: job.submit_s)
    first = path.read_bytes()
    write_trace(iter(jobs), path)
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


def test_columns_that_no_job_uses_are_left_out(tmp_path: Path) -> None:
    write_trace([TraceJob("a", 0, 1.5, 1, 8, queue="x")], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == (
        "job_id,submit_s,duration_s,members,gpus_per_member,queue\na,0,1.5,1,8,x\n"
    )


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 7))
def test_a_long_trace_is_sorted_as_a_short_one(moments: list[int], run_jobs: int) -> None:
    jobs = [TraceJob(f"j{at}", float(moment), 1.0, 1, 1) for at, moment in enumerate(moments)]
    sorted_ = sorted(jobs, key=lambda job: job.submit_s)
    assert list(sorted_by_submission(jobs, run_jobs)) == sorted_


def test_a_trace_says_what_is_in_it_and_is_read_as_often_as_wanted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = ["job_id,submit_s,duration_s,members,gpus_per_member", "b,50,1,1,1", "a,7,1,1,1"]
    path.write_text("\n".join(rows))
    trace = open_trace(path)
    assert (len(trace), trace.first_s, trace.last_s, trace.format) == (2, 7, 50, "gantree")
    assert [job.job_id for job in trace] == [job.job_id for job in trace] == ["a", "b"]
    assert [job.job_id for job in read_trace(path)] == ["b", "a"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_job_that_comes_twice_is_named_with_both_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    write_trace([TraceJob(name, 0, 1, 1, 1) for name in "abcb"], path)
    line = 5 if suffix == ".csv" else 4
    for read in (read_trace, open_trace):
        with pytest.raises(BadFields) as caught:
            read(path)
        (problem,) = caught.value.problems
        assert (problem.line, problem.field) == (line, "job_id")
        assert f"`b` again (first in line {line - 2})" in str(problem)


def test_a_wrong_row_of_a_parquet_file_is_named_by_its_number(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "t.parquet"
    columns = "'a' || i AS job_id, i AS submit_s, 1.5 AS duration_s, i - 1 AS members, 8.0 AS gpus_per_member"
    duckdb.connect().execute(f"COPY (SELECT {columns} FROM range(1, 4) t(i)) TO '{path}'")
    with pytest.raises(BadFields) as caught:
        read_trace(path)
    assert str(caught.value) == (
        f"{path}:1: members: found `0`; allowed: a whole number of 1 or more."
    )


def test_the_header_of_a_parquet_file_is_checked(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "t.parquet"
    duckdb.connect().execute(f"COPY (SELECT 'a' AS job_id, 1 AS submits) TO '{path}'")
    with pytest.raises(
        BadFields, match=r"submits: found an unknown column.*Did you mean `submit_s`"
    ):
        open_trace(path)


def test_a_file_of_another_kind_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\.csv, \.csv\.gz, \.parquet"):
        write_trace([], tmp_path / "t.json")
    with pytest.raises(BadInput, match="cannot be written"):
        write_trace([], tmp_path / "none" / "t.csv")


def test_without_duckdb_a_csv_file_is_read_and_a_parquet_file_names_the_extra(
    tmp_path: Path,
) -> None:
    write_trace([TraceJob("a", 0, 1, 1, 1)], tmp_path / "t.csv")
    write_trace([TraceJob("a", 0, 1, 1, 1)], tmp_path / "t.parquet")
    program = (
        "import sys; sys.modules['duckdb'] = None\n"
        "from pathlib import Path\n"
        "from gantree.formats import open_trace\n"
        "assert len(list(open_trace(Path('t.csv')))) == 1\n"
        "try: open_trace(Path('t.parquet'))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout == (
        "Unsupported Parquet files need DuckDB: pip install 'gantree[simulate]'\n"
    )


def test_a_packed_file_holds_neither_its_name_nor_a_date(tmp_path: Path) -> None:
    jobs = [TraceJob("a", 0, 1, 1, 1)]
    write_trace(jobs, tmp_path / "one.csv.gz")
    write_trace(jobs, tmp_path / "two.csv.gz")
    packed = (tmp_path / "one.csv.gz").read_bytes()
    assert packed == (tmp_path / "two.csv.gz").read_bytes()
    assert gzip.decompress(packed).startswith(b"job_id,")
