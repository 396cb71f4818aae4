"""Traces as files: what is written is read again, in parts and in the order of submission."""

import gzip
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob, open_trace, read_trace, write_trace
from gantree.formats.traces.order import sorted_by_submission
from gantree.model.errors import BadFields, BadInput
from support.examples import examples
from support.traces import TRACES

pytest.importorskip("duckdb")


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


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_longer_trace_needs_a_few_bytes_more_for_each_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, is_sorted: bool
) -> None:
    monkeypatch.setattr("gantree.formats.traces.order.RUN_JOBS", 500)
    monkeypatch.setattr("gantree.formats.traces.parquet.ROWS_AT_ONCE", 256)

    def peak_bytes(jobs: int) -> int:
        path = tmp_path / f"{jobs}{suffix}"
        at = (number if is_sorted else -number % jobs for number in range(jobs))
        write_trace((TraceJob(f"job-{moment}", moment, 1, 1, 1) for moment in at), path)
        tracemalloc.start()
        for job in open_trace(path):
            assert job.members == 1
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    peak_bytes(10)  # imports
    assert peak_bytes(3_000) - peak_bytes(1_500) < 100 * 1_500
