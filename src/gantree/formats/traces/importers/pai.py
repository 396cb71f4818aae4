"""Alibaba PAI 2020 (NSDI 2022, github.com/alibaba/clusterdata, cluster-trace-gpu-v2020): a directory of tables.

    pai_job_table.csv, pai_task_table.csv, and, unless it is missing, pai_group_tag_table.csv

As published they have no header. The task with the most GPUs in all (inst_num x plan_gpu percent) becomes the gang;
other tasks of its job (parameter servers, evaluators) are left out. start_time of a job is its submission; a task runs
from its start to its end. gpu_type_spec is the model that was asked for, workload becomes the queue. Times are wall
clocks of UTC+8, moved by a constant that keeps the time of the week. The tables are joined by DuckDB.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from gantree.formats.traces import cells
from gantree.formats.traces.cells import MONDAY
from gantree.formats.traces.database import connected, quoted
from gantree.formats.traces.importers.document import DocumentFormat
from gantree.formats.traces.importers.members import whole_or_share
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import LeftOut, Row, TableFormat, TableReader
from gantree.formats.traces.text_file import bad_file
from gantree.model.errors import BadFields

ROWS_AT_ONCE = 4096
TABLES: Mapping[str, tuple[str, ...]] = {
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_task_table": (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
        "gpu_type",
    ),
    "pai_group_tag_table": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}  # fmt: skip
OPTIONAL_TABLE = "pai_group_tag_table"
SUFFIXES = (".csv", ".csv.gz")
UTC_8_S = 8 * 3600
GIB_PER_GB = 1e9 / 2**30
_SINCE_MONDAY_S = UTC_8_S - (MONDAY.day - 1) * 86_400
"""From seconds since 1970 by UTC to seconds of the wall clock since `cells.MONDAY`."""
COLUMNS = (
    "job_name", "user", "submit", "inst_num", "start", "end", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type_spec",
    "workload",
)  # fmt: skip
_JOIN = """
WITH tasks AS (
    SELECT *, row_number() OVER (
        PARTITION BY job_name
        ORDER BY coalesce(try_cast(inst_num AS DOUBLE) * try_cast(plan_gpu AS DOUBLE), 0) DESC,
            coalesce(try_cast(inst_num AS DOUBLE) * try_cast(plan_cpu AS DOUBLE), 0) DESC, task_name
    ) AS place FROM pai_task_table
), tags AS (SELECT inst_id, min(gpu_type_spec) AS gpu_type_spec, min(workload) AS workload
    FROM pai_group_tag_table GROUP BY inst_id)
SELECT jobs.job_name, jobs.user, jobs.start_time, tasks.inst_num, tasks.start_time, tasks.end_time, tasks.plan_cpu,
    tasks.plan_mem, tasks.plan_gpu, tags.gpu_type_spec, tags.workload
FROM pai_job_table AS jobs JOIN tasks ON tasks.job_name = jobs.job_name AND tasks.place = 1
    LEFT JOIN tags ON tags.inst_id = jobs.inst_id
ORDER BY try_cast(jobs.start_time AS DOUBLE), jobs.job_name
"""


def _knows(path: Path) -> bool:
    return path.is_dir() and all(
        _file_of(path, table) is not None for table in TABLES if table != OPTIONAL_TABLE
    )


def _file_of(folder: Path, table: str) -> Path | None:
    files = (folder / f"{table}{suffix}" for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _read(path: Path, left_out: Counter[str]) -> Iterator[Row]:
    reader = TableReader(COLUMNS, PAI_ROWS, str(path))
    rows = ([("" if cell is None else str(cell)) for cell in row] for row in _rows(path))
    yield from reader.jobs(enumerate(rows, start=1))
    left_out.update(reader.left_out)


def _rows(folder: Path) -> Generator[tuple[Any, ...], None, None]:
    """The joined rows, as text. Raises BadFields and Unsupported."""
    with connected("Directories of tables") as database:
        import duckdb  # noqa: PLC0415 - an extra; it is there, since the database is

        try:
            for table, columns in TABLES.items():
                database.execute(f"CREATE VIEW {table} AS {_select(folder, table, columns)}")
            found = database.execute(_JOIN)
            while batch := found.fetchmany(ROWS_AT_ONCE):
                yield from batch
        except duckdb.Error as error:
            raise _refused(folder, error) from None


def _select(folder: Path, table: str, columns: tuple[str, ...]) -> str:
    """All rows of a table as text; none where the table may be missing and is. A header is no row."""
    file = _file_of(folder, table)
    if file is None:
        empty = ", ".join(f"NULL::VARCHAR AS {quoted_name(name)}" for name in columns)
        return f"SELECT {empty} WHERE false"
    typed = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in columns)
    settings = "header = false, auto_detect = false, delim = ',', quote = '\"', escape = '\"'"
    source = f"read_csv({quoted(str(file))}, columns = {{{typed}}}, {settings})"
    first = quoted_name(columns[0])
    return f"SELECT * FROM {source} WHERE {first} <> {quoted(columns[0])}"  # noqa: S608 - quoted


def quoted_name(name: str) -> str:
    """A name of SQL: `user` and `group` are words of its own."""
    return '"' + name.replace('"', '""') + '"'


def _refused(folder: Path, error: Exception) -> BadFields:
    return bad_file(folder, str(error).splitlines()[0], "the tables of PAI, as published")


def _job(values: dict[str, Any]) -> TraceJob:
    if "start" not in values:
        raise LeftOut("never started")
    if "end" not in values or values["end"] < values["start"]:
        raise LeftOut("has no end")
    return TraceJob(
        job_id=values["job_name"],
        submit_s=values["submit"] + _SINCE_MONDAY_S,
        duration_s=values["end"] - values["start"],
        members=max(1, values.get("inst_num", 1)),
        gpu=values.get("gpu_type_spec"),
        queue=values.get("workload", "default"),
        user=values.get("user", ""),
        cpus_per_member=values.get("plan_cpu", 0.0) / 100,
        memory_GiB_per_member=round(values.get("plan_mem", 0.0) * GIB_PER_GB, 6),
        **whole_or_share(values.get("plan_gpu", 0.0) / 100),
    )


PAI_ROWS = TableFormat(
    name="pai",
    title="Alibaba PAI 2020",
    required={"job_name": cells.NAME, "submit": cells.SECONDS},
    optional={
        **dict.fromkeys(("start", "end"), cells.SECONDS),
        **dict.fromkeys(("plan_cpu", "plan_mem", "plan_gpu"), cells.AMOUNT),
        "inst_num": cells.WHOLE,
        "gpu_type_spec": cells.TEXT,
        "workload": cells.FOREIGN_NAME,
        "user": cells.TEXT,
    },
    job=_job,
    absent=frozenset({"", "nan", "NaN"}),
    own_clock=False,
)
PAI = DocumentFormat(
    "pai", "Alibaba PAI 2020 (a directory of tables)", _knows, _read, own_clock=False
)
