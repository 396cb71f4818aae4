"""Public traces and accounts of other schedulers: small files in the published columns, originals where they are."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob, cells, open_trace, read_trace
from gantree.formats.traces.cells import Cell
from gantree.formats.traces.columns import COLUMNS, REQUIRED, conflict_in
from gantree.formats.traces.importers import TABLES
from gantree.formats.traces.importers.philly_log import PHILLY_LOG
from gantree.formats.traces.table import TableFormat, TableReader
from gantree.formats.traces.writer import cell_text
from gantree.model.errors import BadFields
from support.examples import examples

ORIGINALS = Path(__file__).parents[4] / "shared/data/traces"
DATA = Path(__file__).parents[2] / "data/traces"
DAY_S = 86_400


def read(path: Path) -> tuple[list[TraceJob], str, Counter[str]]:
    trace = open_trace(path)
    jobs = list(trace)
    assert sorted(read_trace(path), key=lambda job: job.submit_s) == jobs
    return jobs, trace.format, trace.left_out


def read_data(name: str) -> tuple[list[TraceJob], str, Counter[str]]:
    return read(DATA / name)


def sizes(jobs: list[TraceJob]) -> list[tuple[int, int]]:
    return [(job.members, job.gpus_per_member) for job in jobs]


def clock(day: int, hour: int, minute: int = 0, second: int = 0) -> float:
    """Seconds since Monday at midnight."""
    return ((day * 24 + hour) * 60 + minute) * 60 + second


def test_helios_is_known_by_its_columns() -> None:
    jobs, form, left_out = read_data("helios.csv")
    assert (form, left_out) == ("helios", {"never started": 1})
    tuesday = clock(1, 18, 41, 1)
    assert jobs[0] == TraceJob(
        "1425511", tuesday, 36848, 1, 1, queue="vcJkd", user="uXBbc", cpus_per_member=1.0
    )
    assert jobs[1].submit_s == tuesday + 26
    assert sizes(jobs) == [(1, 1), (2, 8), (2, 6)]
    assert jobs[1].cpus_per_member == 32


def test_acme_is_known_by_its_columns() -> None:
    jobs, form, left_out = read_data("acme-seren.csv")
    assert (form, left_out) == ("acme", {"ended before it started": 1})
    wednesday = clock(2, 0, 18, 22)
    assert jobs == [
        TraceJob("5778432", wednesday, 117, 1, 8, queue="Other", user="u5907", cpus_per_member=128)
    ]
    jobs, form, _ = read_data("acme-kalos.csv")
    assert (form, sizes(jobs), jobs[0].memory_GiB_per_member) == ("acme", [(8, 8)], 1000)


def test_muri_is_known_by_its_columns() -> None:
    jobs, form, _ = read_data("muri.csv")
    assert form == "muri"
    assert jobs == [
        TraceJob("0", 0, 927475, 1, 4, model="shufflenet_v2_x1_0"),
        TraceJob("1", 1456, 926133, 2, 8, model="resnet18"),
    ]


def test_openb_is_known_by_its_columns_and_keeps_shares() -> None:
    jobs, form, left_out = read_data("openb.csv")
    assert (form, left_out) == ("openb", {"never scheduled": 1})
    whole, share, choosy = jobs
    assert (whole.gpus_per_member, whole.cpus_per_member, whole.memory_GiB_per_member) == (
        8,
        88,
        320,
    )
    assert (share.gpus_per_member, share.gpu_share, share.duration_s) == (0, 0.22, 6900)
    assert (choosy.gpu, choosy.submit_s, choosy.duration_s) == ("V100M16|V100M32", 3000, 1500)


def test_spot_jobs_of_2026_have_a_market_and_a_priority() -> None:
    jobs, form, _ = read_data("alibaba-spot-2026.csv")
    assert form == "alibaba-spot-2026"
    assert jobs == [
        TraceJob(
            "1", 0, 86400, 1, 1, "A10", "13", priority="production", cpus_per_member=20,
            market="on-demand",
        ),
        TraceJob(
            "2", 7200, 600, 16, 0, "A100-SXM4-80GB", "57", cpus_per_member=15,
            market="any", gpu_share=0.5,
        ),
    ]  # fmt: skip


def test_inference_instances_of_2025_run_from_the_start_to_the_end_of_the_trace() -> None:
    jobs, form, _ = read_data("alibaba-dlrm-2025.csv")
    assert form == "alibaba-dlrm-2025"
    assert [(job.submit_s, job.duration_s) for job in jobs] == [(0, 31 * DAY_S), (5000, 130)]
    assert [(job.gpus_per_member, job.queue) for job in jobs] == [(1, "app-a"), (0, "app-b")]


def test_accounting_of_slurm_is_known_by_its_columns() -> None:
    jobs, form, left_out = read_data("sacct.txt")
    assert (form, left_out) == ("sacct", {"a step of a job": 1, "never started": 1})
    assert jobs == [
        TraceJob(
            "100", clock(0, 8), 26 * 3600, 4, 8, "h100", "gpu-big", "ann", cpus_per_member=64,
            memory_GiB_per_member=512, time_limit_s=2 * DAY_S,
        ),
        TraceJob(
            "101_7", clock(1, 0), 600, 1, 0, None, "cpu", "bob", cpus_per_member=8,
            memory_GiB_per_member=64,
        ),
        TraceJob("103-1", clock(2, 0), 600, 1, 2, "a100", "ml", "bob", cpus_per_member=8),
    ]  # fmt: skip


def entry(**changes: Any) -> dict[str, Any]:
    """A job of Philly's log, from its documentation."""

    def attempt(start: str | None, end: str | None, *machines: int) -> dict[str, Any]:
        gpus = [
            {"ip": f"m{at}", "gpus": [f"gpu{n}" for n in range(count)]}
            for at, count in enumerate(machines)
        ]
        return {"start_time": start, "end_time": end, "detail": gpus}

    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1506638472019_14199",
        "attempts": [
            attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
            attempt("2017-10-07 01:13:30", "2017-10-09 06:53:12", *changes.pop("machines", (8,))),
        ],
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
        **changes,
    }  # fmt: skip


def test_the_log_of_philly_is_read_object_by_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantree.formats.traces.importers.philly_log.CHUNK_CHARS", 100)
    gpus = [{"ip": "m1", "gpus": ["gpu0"]}]
    unfinished = {"start_time": "2017-10-07 01:12:09", "end_time": None, "detail": gpus}
    entries = [
        entry(),
        entry(jobid="two", machines=(4, 4)),
        entry(jobid="uneven", machines=(8, 4)),
        entry(jobid="none", attempts=[]),
        entry(jobid="open", attempts=[unfinished]),
    ]  # fmt: skip
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(entries, indent=1))
    jobs, form, left_out = read(path)
    assert form == "philly"
    assert left_out == {"never ran on a GPU": 1, "an attempt has no start or no end": 1}
    saturday, ran_s = clock(5, 1, 11, 39), 74 + 193182
    assert jobs[0] == TraceJob(
        "application_1506638472019_14199", saturday, ran_s, 1, 8, queue="ee9e8c", user="ce2f4c"
    )
    assert sizes(jobs) == [(1, 8), (2, 4), (2, 6)]


def test_what_is_wrong_in_the_log_of_philly_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [
        "[",
        json.dumps(entry()) + ",",
        json.dumps(entry(jobid="b", submitted_time="soon")),
        "]",
    ]
    path.write_text("\n".join(lines))
    with pytest.raises(BadFields) as caught:
        open_trace(path)
    (problem,) = caught.value.problems
    assert (problem.line, problem.field, problem.found) == (3, "submitted_time", "`soon`")
    path.write_text("[" + json.dumps(entry()) + ",\n{")
    with pytest.raises(BadFields, match=r":2: document: .*a whole list of jobs"):
        open_trace(path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "None", "2017-10-07 01:12:09", "gpu0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["start_time", "end_time", "detail", "gpus", "ip"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
ENTRIES = st.builds(
    lambda changes: entry(**changes),
    st.dictionaries(st.sampled_from(["vc", "jobid", "attempts", "submitted_time", "user"]), JSON, max_size=2),
) | JSON  # fmt: skip


@settings(max_examples=examples(300))
@given(entries=st.lists(ENTRIES, max_size=2))
def test_no_entry_of_the_log_of_philly_makes_anything_but_a_job_or_a_named_problem(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("philly") / "log"
    path.write_text("[\n" + ",\n".join(json.dumps(each) for each in entries) + "]")
    left_out: Counter[str] = Counter()
    try:
        jobs = list(PHILLY_LOG.read(path, left_out))
    except BadFields as error:
        assert all(problem.line is not None for problem in error.problems)
    else:
        assert len(jobs) + left_out.total() == len(entries)


def test_a_log_of_nothing_but_brackets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("[" * 200_000)
    with pytest.raises(BadFields, match="more brackets"):
        list(PHILLY_LOG.read(path, Counter()))


def pai(folder: Path) -> Path:
    """The tables of PAI, without header, as they are published."""
    (folder / "pai_job_table.csv").write_text(
        "j1,i1,u1,Terminated,4550879.0,4551416.0\nj2,i2,u2,Failed,100.0,\nj3,i3,u3,Waiting,300.0,\n"
    )
    (folder / "pai_task_table.csv").write_text(
        "j1,ps,2.0,Terminated,4550890.0,4551416.0,600.0,29.296875,,\n"
        "j1,worker,4.0,Terminated,4550900.0,4551400.0,400.0,29.296875,50.0,V100\n"
        "j2,tensorflow,1.0,Failed,150.0,160.0,800.0,10.0,200.0,MISC\n"
        "j3,tensorflow,1.0,Waiting,,,800.0,10.0,100.0,MISC\n"
    )
    (folder / "pai_group_tag_table.csv").write_text("i1,u1,V100M32,g,nmt\n")
    return folder


def test_the_tables_of_pai_are_joined(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    trace = open_trace(pai(tmp_path))
    assert (trace.format, trace.left_out) == ("pai", {"never started": 1})
    first, second = trace
    thursday = clock(3, 8)  # 1970 began on a Thursday; UTC+8
    assert (first.job_id, first.submit_s, first.duration_s) == ("j2", thursday + 100, 10)
    assert (first.members, first.gpus_per_member, first.cpus_per_member) == (1, 2, 8)
    assert (second.job_id, second.members, second.gpu_share, second.duration_s) == (
        "j1",
        4,
        0.5,
        500,
    )
    assert (second.gpu, second.queue, second.user) == ("V100M32", "nmt", "u1")
    assert second.submit_s == thursday + 4550879


def test_pai_does_without_its_tags(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    (pai(tmp_path) / "pai_group_tag_table.csv").unlink()
    assert [(job.gpu, job.queue) for job in open_trace(tmp_path)] == [(None, "default")] * 2


def test_a_row_that_is_not_as_published_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = (DATA / "helios.csv").read_text()
    path.write_text(text.replace("2020-06-09 18:41:27,2020", "yesterday,2020", 1))
    with pytest.raises(BadFields) as caught:
        open_trace(path)
    assert [(each.line, each.field) for each in caught.value.problems] == [(3, "submit_time")]


def test_a_table_of_another_format_than_wanted_says_what_is_missing() -> None:
    with pytest.raises(BadFields, match="vc: found no such column"):
        open_trace(DATA / "muri.csv", "helios")


CELLS = [
        "", "0", "1", "8", "8.0", "12.5", "-1", "1e400", "nan", "a", "a b", "..", "7.batch", "7_[1-3]", "None",
        "2026-01-05T08:00:00", "0001-01-01 00:00:00", "2026-01-05 08:00:00+08:00", "1-02:03:04", "cpu=8,gres/gpu=x",
        "cpu=8,gres/gpu:a=2,gres/gpu:b=2,mem=1K", "mem=", "HP", "Spot", "\0", "9" * 400,
]  # fmt: skip


def cells_of(kind: Cell) -> st.SearchStrategy[str]:
    """Mostly what such a cell may hold."""

    def is_right(text: str) -> bool:
        try:
            kind.parse(text)
        except (ValueError, OverflowError):
            return False
        return True

    right = [text for text in CELLS if is_right(text)]
    return st.one_of([st.sampled_from(right)] * 8 + [st.sampled_from(CELLS), st.text(max_size=8)])


@pytest.mark.parametrize("form", TABLES, ids=lambda form: form.name)
@settings(max_examples=examples(300))
@given(data=st.data())
def test_no_cell_makes_anything_but_a_job_or_a_named_problem(
    form: TableFormat, data: st.DataObject
) -> None:
    header = list(dict.fromkeys((*form.required, *form.mark, *form.optional)))
    reader = TableReader(header, form, "t")
    kinds = {**dict.fromkeys(form.mark, cells.TEXT), **form.optional, **form.required}
    row = st.tuples(*(cells_of(kinds[column]) for column in header))
    rows = data.draw(st.lists(row, max_size=2))
    try:
        jobs = list(reader.jobs(enumerate(rows, start=2)))
    except BadFields as error:
        assert all(problem.field in header for problem in error.problems)
    else:
        assert len(jobs) + reader.left_out.total() == len(rows)
        for _, job in jobs:
            assert conflict_in(job) is None
            assert all(
                COLUMNS[name].parse(cell_text(getattr(job, name))) == getattr(job, name)
                for name in REQUIRED
            )


@pytest.mark.parametrize(
    ("file", "form", "jobs", "gpu_hours", "left_out"),
    [
        ("philly_pollux/philly_jobs", "philly-pollux", 82_247, 978_078, 0),
        ("philly_muri/trace3", "muri-seconds", 992, 116_690, 0),
        ("philly_muri/trace4", "muri-seconds", 2_638, 204_902, 0),
        ("openb2023/openb_pod_list_default", "openb", 7_255, 0, 897),
        ("alibaba_dlrm2025/disaggregated_DLRM_trace", "alibaba-dlrm-2025", 23_871, 0, 0),
    ],
)
def test_originals_are_read_whole(
    file: str, form: str, jobs: int, gpu_hours: int, left_out: int
) -> None:
    path = ORIGINALS / f"{file}.csv.gz"
    if not path.exists():
        pytest.skip("the public trace is not at hand")
    trace = open_trace(path)
    assert (trace.format, len(trace), trace.left_out.total()) == (form, jobs, left_out)
    held_s = sum(job.members * job.gpus_per_member * job.duration_s for job in trace)
    assert not gpu_hours or round(held_s / 3600) == gpu_hours
