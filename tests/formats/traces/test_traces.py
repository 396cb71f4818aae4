"""Traces: our own columns, Philly's, and rows that are wrong."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import TraceJob, read_trace
from gantree.formats.traces import read_trace_text
from gantree.formats.traces.importers.members import GPUS_OF_A_MACHINE, equal_members
from gantree.model.errors import BadFields, GantreeError, NotFound
from gantree.model.jobs import Slices, TopologySpec
from gantree.sim.workload import job_of

DATA = Path(__file__).parents[2] / "data" / "traces"
PHILLY = Path(__file__).parents[4] / "shared/data/traces/philly_pollux/philly_jobs.csv.gz"
HEADER = "job_id,submit_s,duration_s,members,gpus_per_member"

SMALL_JOBS = [
    TraceJob("a", 0, 3600, 2, 8, "H100-80GB", "research/nlp", "ann", "production", 16, 600, 7200),
    TraceJob("b", 12.5, 60, 1, 0),
    TraceJob("c", 1000, 0, 1, 1, priority=-5, cpus_per_member=0.5),
]


def test_a_trace_is_read_with_all_columns() -> None:
    assert read_trace(DATA / "small.csv") == SMALL_JOBS


def test_a_gzipped_trace_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "small.csv.gz"
    path.write_bytes(gzip.compress((DATA / "small.csv").read_bytes()))
    assert read_trace(path) == SMALL_JOBS


def test_columns_may_stand_in_any_order_and_optional_ones_be_missing() -> None:
    lines = ["members,job_id,gpus_per_member,duration_s,submit_s\n", "2,x,4,10,5\n", "\n"]
    assert read_trace_text(lines, "t.csv") == [TraceJob("x", 5, 10, 2, 4)]


def test_what_a_job_expects_and_allows_is_read() -> None:
    header = HEADER + ",expected_s,preemptible,elastic_min,elastic_max\n"
    lines = [header, "a,0,1,4,8,90.5,no,2,8\n", "b,0,1,4,8,,,,\n", "c,0,1,1,1,,yes,1,1\n"]
    assert read_trace_text(lines, "t.csv") == [
        TraceJob("a", 0, 1, 4, 8, expected_s=90.5, preemptible=False, elastic_min=2, elastic_max=8),
        TraceJob("b", 0, 1, 4, 8),
        TraceJob("c", 0, 1, 1, 1, elastic_min=1, elastic_max=1),
    ]


@pytest.mark.parametrize(
    ("cells", "column", "words"),
    [
        ("0,,,", "expected_s", "more than 0"),
        (",maybe,,", "preemptible", "yes or no"),
        (",,0,4", "elastic_min", "1 or more"),
        (",,2,", "elastic_max", "both bounds or none"),
        (",,,8", "elastic_min", "both bounds or none"),
        (",,5,8", "elastic_min", "at most members, which are 4"),
        (",,1,3", "elastic_max", "at least members, which are 4"),
    ],
)
def test_what_a_job_cannot_expect_and_allow_is_named(cells: str, column: str, words: str) -> None:
    header = HEADER + ",expected_s,preemptible,elastic_min,elastic_max\n"
    with pytest.raises(BadFields) as caught:
        read_trace_text([header, f"a,0,1,4,8,{cells}\n"], "t.csv")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (2, column)
    assert words in str(problem)


def test_what_a_job_asks_of_the_topology_is_read() -> None:
    header = HEADER + ",required,preferred,slice_members,slice_required\n"
    lines = [header, "a,0,1,4,8,spine,leaf,2,nvlink\n", "b,0,1,4,8,,,,\n"]
    asking = TraceJob(
        "a", 0, 1, 4, 8, required="spine", preferred="leaf", slice_members=2, slice_required="nvlink"
    )  # fmt: skip
    jobs = [asking, TraceJob("b", 0, 1, 4, 8)]
    assert read_trace_text(lines, "t.csv") == jobs
    assert job_of(jobs[0]).topology == TopologySpec("spine", "leaf", (Slices(2, "nvlink"),))
    assert job_of(jobs[1]).topology == TopologySpec()


@pytest.mark.parametrize(
    ("cells", "column"),
    [("a b,,,", "required"), (",,0,leaf", "slice_members"), (",,2,", "slice_required"), (",,,leaf", "slice_members")],
)  # fmt: skip
def test_what_a_job_cannot_ask_of_the_topology_is_named(cells: str, column: str) -> None:
    header = HEADER + ",required,preferred,slice_members,slice_required\n"
    with pytest.raises(BadFields) as caught:
        read_trace_text([header, f"a,0,1,4,8,{cells}\n"], "t.csv")
    assert [problem.field for problem in caught.value.problems] == [column]


def test_philly_is_known_by_its_columns() -> None:
    jobs = read_trace(DATA / "philly-head.csv")
    assert jobs[0] == TraceJob("0", 0, 2240194, 1, 8, queue="7f04ca")
    assert [(job.members, job.gpus_per_member) for job in jobs] == [(1, 8), (1, 1), (2, 8), (2, 6)]


@pytest.mark.parametrize(
    ("gpus", "members", "each"),
    [(1, 1, 1), (7, 1, 7), (8, 1, 8), (12, 2, 6), (16, 2, 8), (24, 3, 8), (11, 11, 1), (15, 3, 5)],
)  # fmt: skip
def test_philly_jobs_are_split_over_machines_of_eight(gpus: int, members: int, each: int) -> None:
    assert equal_members(gpus) == (members, each)


@given(st.integers(1, 5000))
def test_no_gpu_of_a_philly_job_is_lost_and_no_member_too_large(gpus: int) -> None:
    members, each = equal_members(gpus)
    assert members * each == gpus
    assert 1 <= each <= GPUS_OF_A_MACHINE


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        ("a,-1,1,1,1", "submit_s", "0 or more"),
        ("a,x,1,1,1", "submit_s", "`x`"),
        ("a,,1,1,1", "submit_s", "nothing"),
        ("a,1,nan,1,1", "duration_s", "`nan`"),
        ("a,1,inf,1,1", "duration_s", "`inf`"),
        ("a,1,1_0,1,1", "duration_s", "`1_0`"),
        ("a,1,1,0,1", "members", "1 or more"),
        ("a,1,1,1.5,1", "members", "`1.5`"),
        ("a,1,1,1,-1", "gpus_per_member", "0 or more"),
        ("../a,1,1,1,1", "job_id", "`../a`"),
        ("a,1,1,1", "row", "4 columns"),
        ("a,1,1,1,1,1", "row", "6 columns"),
        ("ok,1,1,1,1", "job_id", "first in line 2"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named_with_line_and_column(row: str, column: str, words: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_trace_text([HEADER + "\n", "ok,0,1,1,1\n", row + "\n"], "t.csv")
    (problem,) = caught.value.problems
    assert (problem.source, problem.line, problem.field) == ("t.csv", 3, column)
    assert words in str(problem)


@pytest.mark.parametrize(
    ("header", "column", "words"),
    [
        ("job_id,submit_s,duration_s,members", "gpus_per_member", "required"),
        (HEADER + ",qeue", "qeue", "Did you mean `queue`?"),
        (HEADER + ",members", "members", "each column once"),
        ("", "job_id", "required"),
    ],
)
def test_a_wrong_header_is_named(header: str, column: str, words: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_trace_text([header + "\n"], "t.csv")
    told = [problem for problem in caught.value.problems if problem.field == column]
    assert told[0].line == 1
    assert words in str(told[0])


def test_all_wrong_rows_are_told_up_to_a_hundred() -> None:
    with pytest.raises(BadFields) as caught:
        read_trace_text([HEADER + "\n", *["a,x,1,1,y\n"] * 500], "t.csv")
    assert len(caught.value.problems) == 100


@pytest.mark.parametrize(
    ("name", "raw", "error"),
    [
        ("t.csv", b"\xff\xfe", BadFields),
        ("t.csv.gz", b"no gzip", BadFields),
        ("t.csv.gz", gzip.compress(b"job_id" * 1000, mtime=0)[:-12], BadFields),
        ("t.csv", b'job_id,"x', BadFields),
        ("t.csv", b'"' + b"x" * 200_000 + b'"', BadFields),
        ("t.parquet", b"PAR1", BadFields),
        ("t.csv", b"PAR1\x00\x00", BadFields),
    ],
)
def test_files_that_are_no_trace_are_refused(
    tmp_path: Path, name: str, raw: bytes, error: type[GantreeError]
) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(error):
        read_trace(path)


def test_a_missing_trace_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_trace(tmp_path / "none.csv")


@given(st.lists(st.text(max_size=60), max_size=8), st.booleans())
def test_no_text_makes_anything_but_a_gantree_error(rows: list[str], good_header: bool) -> None:
    try:
        read_trace_text([HEADER + "\n", *rows] if good_header else rows, "t.csv")
    except GantreeError as error:
        assert str(error)


@pytest.mark.skipif(not PHILLY.exists(), reason="the public Philly trace is not at hand")
def test_the_public_philly_trace_is_read_whole() -> None:
    jobs = read_trace(PHILLY)
    assert len(jobs) == 82_247
    gpu_hours = sum(j.members * j.gpus_per_member * j.duration_s for j in jobs) / 3600
    assert round(gpu_hours) == 978_078
