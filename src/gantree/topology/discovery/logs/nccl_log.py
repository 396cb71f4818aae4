"""The text of an nccl-tests log as tables of rows with line numbers; `nccl_tests` interprets them.

The table of a test is for people, and its columns changed: `error` was a deviation before it became the count
`#wrong`, `redop` and `root` came later, `-T` adds a time stamp, `-C` prints CPU time, and the tests of NCCL 1 print
milliseconds. So the header decides what is where, and words are counted, never characters. Launchers put
"[1,0]<stdout>:" or "0: " before each line. NCCL's own log lines fall between rows and into them: the first words of a
row are printed before the collective runs, its out-of-place half after it, its in-place half after the next one. Logs
hold several tests, and are cut at either end.

This module finds the tables and joins what was torn apart. A row that is not whole is left out and named. It judges
no figure. The format is that of NVIDIA/nccl-tests 2.0 to 2.18 (src/common.cu, src/util.cu) and ROCm/rccl-tests.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

COLLECTIVE_OF_TEST = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "gather": "gather",
    "scatter": "scatter",
    "hypercube": "hypercube",
}
"""Collectives, in the words of this project, by test: the program is TEST_perf."""
BYTES_OF_TYPE = {"int8": 1, "char": 1, "uint8": 1, "int32": 4, "int": 4, "uint32": 4, "int64": 8, "uint64": 8,
                 "half": 2, "float": 4, "double": 8, "bfloat16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1,
                 "fp8_e4m3": 1, "fp8_e5m2": 1}  # fmt: skip
"""Data types by name, with the bytes of one element."""
MAX_LINE_CHARS = 4000
"""A longer line is no line of a test."""

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_CELL = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,9})?(?:[eE][-+]?[0-9]{1,2})?|N/A|-?nan|-?inf")
_PREAMBLE = re.compile(
    r"(?<![^\s:|>\]])([0-9]{1,18})[ \t]{1,40}([0-9]{1,18})[ \t]{1,40}"
    rf"([a-z][a-z0-9_]{{1,15}}(?!\S)|(?:{'|'.join(sorted(BYTES_OF_TYPE, key=len, reverse=True))}))"
)
_OPERATION = re.compile(r"[a-z]{2,10}(?!\S)|(?:sum|prod|max|min|avg|none|mulsum)")
_ROOT = re.compile(r"[0-9]{1,7}")
_NO_ROOT = re.compile(r"-1(?![0-9.])")
_HEADER = re.compile(r"#\s+(size\s+count|bytes\s+N)\s+type\s")
_RANK = re.compile(
    r"#\s+Rank\s+([0-9]{1,7})\s+(?:Group\s+([0-9]{1,7})\s+)?(?:Pid\s+[0-9]{1,10}\s+)?on\s+(\S{1,255})\s+"
    r"device\s+([0-9]{1,5})\s+\[([0-9A-Fa-fx:.]{1,20})\]\s*([^\r\n]{0,200})"
)
_PARAMETERS = re.compile(r"#\s+nThread\s+([0-9]{1,4})\s+nGpus\s+([0-9]{1,4})\s")
_BEGINNING = re.compile(r"#\s+(?:nccl-tests version|Collective test starting:|nThread\s+[0-9])")
_STARTING = re.compile(r"Collective test starting:\s+(\S{1,100})")
_PROGRAM = re.compile(rf"\b({'|'.join(COLLECTIVE_OF_TEST)})_perf")
_LIBRARY_CODE = re.compile(r"nccl-library=([0-9]{4,6})\b")
_LIBRARY = re.compile(r"\b(NCCL|RCCL) version\s?:?\s+([0-9]{1,3}(?:\.[0-9]{1,4}){1,3}[^\s,]{0,60})")
_OUT_OF_BOUNDS = re.compile(r"#\s+Out of bounds values\s*:\s*([0-9]{1,18})(?:\s+(FAILED))?")
_AVERAGE = re.compile(r"#\s+Avg bus bandwidth\s*:\s*([0-9]{1,9}(?:\.[0-9]{0,9})?)")
_FAILURE = re.compile(r"Test (?:NCCL|CUDA|RCCL|HIP) failure|Test timeout|\.\. failure in test")


@dataclass(frozen=True, slots=True)
class Cells:
    """The words of one side of a row: time, algbw, busbw, and #wrong or the deviation."""

    time: str
    algbw: str
    busbw: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Row:
    """The first words of a row. redop and root are None where the print has none."""

    line: int
    size: int
    count: int
    dtype: str
    redop: str | None
    root: int | None


@dataclass(frozen=True, slots=True)
class RankDevice:
    """Where a rank ran. group is 0 unless the ranks were split into groups; bus as printed ("0x0f")."""

    rank: int
    group: int
    host: str
    device: int
    bus: str
    model: str


@dataclass(frozen=True, slots=True)
class Columns:
    """What the header of a table states: has it a root, is time in ms, is it CPU time, is `error` a deviation?

    root is None before a header was read.
    """

    root: bool | None = None
    in_ms: bool = False
    cpu_time: bool = False
    deviations: bool = False


@dataclass(slots=True)
class Table:
    """One test of a log: what was printed before its rows, the rows, its foot. None and empty where not given.

    program is the collective that the test states it is of, command the one that the command line before it names.
    failed: an error of the test was printed.
    """

    program: str | None = None
    command: str | None = None
    gpus_of_a_process: int | None = None
    devices: list[RankDevice] = field(default_factory=list)
    columns: Columns = Columns()
    rows: list[tuple[Row, Cells, Cells | None]] = field(default_factory=list)
    library: str | None = None
    version: str | None = None
    avg_busbw: float | None = None
    out_of_bounds: int | None = None
    failed: bool = False
    warnings: list[str] = field(default_factory=list)


def read_tables(text: str) -> tuple[list[Table], list[str]]:
    """Return the tests of a log that have rows, and warnings of tests that ended before any."""
    reader = _Reader()
    for number, line in enumerate(text.replace("\r", "\n").split("\n"), start=1):
        if len(line) <= MAX_LINE_CHARS:
            reader.take(number, _ANSI.sub("", line))
    reader.settle()
    tables = [table for table in reader.tables if table.rows]
    lost = [words for table in reader.tables if not table.rows for words in table.warnings]
    return tables, lost


class _Reader:
    """Goes through the lines of a log once, with the table that is open and the row that is half read."""

    def __init__(self) -> None:
        self.tables = [Table()]
        self._torn: tuple[Row, list[str]] | None = None
        self._programs: set[str] = set()

    @property
    def _table(self) -> Table:
        return self.tables[-1]

    def take(self, number: int, line: str) -> None:
        """Take the next line."""
        preamble = _PREAMBLE.search(line)
        if preamble and "#" not in line[: preamble.start()]:
            self._row(number, preamble, line[preamble.end() :])
            return
        if self._torn and self._goes_on(self._torn, line.split()):
            return
        if "#" in line:
            self._comment(number, line)
        self._mentions(number, line)

    def _row(self, number: int, preamble: re.Match[str], rest: str) -> None:
        self.settle()
        if self._table.avg_busbw is not None:
            self._open()  # the next test, of which the header was cut
        row, words = _preamble(number, preamble, rest, self._table.columns)
        cells = list(takewhile(_CELL.fullmatch, words))
        self._torn = (row, cells)
        if len(cells) >= 8:
            self.settle()

    def _goes_on(self, torn: tuple[Row, list[str]], words: Sequence[str]) -> bool:
        """Take a half of the row that was torn apart, if a line is one."""
        row, cells = torn
        more = list(takewhile(_CELL.fullmatch, words))
        if len(more) not in {4, 8} or len(cells) not in {0, 4} or len(cells) + len(more) > 8:
            return False
        self._torn = (row, cells + more)
        if len(cells) + len(more) == 8:
            self.settle()
        return True

    def settle(self) -> None:
        """Add the row that was read, as far as it is whole."""
        if self._torn is None:
            return
        row, cells = self._torn
        self._torn = None
        if len(cells) > 8 or len(cells) < 4 or not _is_told(cells[:4]):
            self._warn(f"line {row.line}: the row is not whole and was left out")
            return
        second = Cells(*cells[4:8]) if len(cells) == 8 and _is_told(cells[4:8]) else None
        if second is None:
            self._warn(f"line {row.line}: the row has no whole in-place half")
        if not self._table.rows and len(self._programs) == 1:
            self._table.command = next(iter(self._programs))
        self._programs.clear()
        self._table.rows.append((row, Cells(*cells[:4]), second))

    def _warn(self, words: str) -> None:
        self._table.warnings.append(words)

    def _open(self) -> None:
        """Open the next table, unless nothing was read yet of the one that is open."""
        self.settle()
        if self._table.rows or self._table.failed:
            self.tables.append(Table())

    def _comment(self, number: int, line: str) -> None:
        if _BEGINNING.search(line):
            self._open()
        if match := _STARTING.search(line):
            program = _PROGRAM.search(match[1])
            self._table.program = COLLECTIVE_OF_TEST[program[1]] if program else None
        if match := _PARAMETERS.search(line):
            self._table.gpus_of_a_process = int(match[1]) * int(match[2])
        if match := _LIBRARY_CODE.search(line):
            self._table.version = _version_of_code(int(match[1]))
        if match := _RANK.search(line):
            self._rank(match)
        if match := _HEADER.search(line):
            self._header(line, in_ms=match[1].startswith("bytes"))
        self._foot(number, line)

    def _rank(self, match: re.Match[str]) -> None:
        self._open()
        rank, group, host, device, bus, model = match.groups()
        found = RankDevice(int(rank), int(group or 0), host, int(device), bus, model.strip())
        self._table.devices.append(found)

    def _header(self, line: str, in_ms: bool) -> None:
        before = self._table
        self._open()
        if self._table is not before:  # the same test once more (-N): nothing else was printed
            self._table.program = before.program
            self._table.devices = before.devices
            self._table.gpus_of_a_process = before.gpus_of_a_process
        self._table.columns = Columns(
            root=" root" in line,
            in_ms=in_ms,
            cpu_time="cputime" in line,
            deviations="#wrong" not in line,
        )

    def _foot(self, number: int, line: str) -> None:
        if match := _OUT_OF_BOUNDS.search(line):
            self.settle()
            self._table.out_of_bounds = int(match[1])
            if match[2] or int(match[1]):
                self._warn(f"line {number}: out of bounds values: {match[1]} FAILED")
        if match := _AVERAGE.search(line):
            self.settle()
            self._table.avg_busbw = float(match[1])

    def _mentions(self, number: int, line: str) -> None:
        """Note what a line that is no row states about the test: its program, its library, that it failed."""
        if "#" not in line:
            self._programs.update(COLLECTIVE_OF_TEST[match[1]] for match in _PROGRAM.finditer(line))
        if match := _LIBRARY.search(line):
            self._table.library = match[1].lower()
            self._table.version = match[2]
        if _FAILURE.search(line) and not self._table.failed:
            self.settle()
            self._table.failed = True
            self._warn(f"line {number}: the test failed: {line.strip()[:200]}")


def _preamble(
    number: int, match: re.Match[str], rest: str, columns: Columns
) -> tuple[Row, list[str]]:
    """Return the first words of a row, and the words after them."""
    redop, root = None, None
    if operation := _OPERATION.match(rest.lstrip()):
        redop = operation[0]
        rest = rest.lstrip()[operation.end() :]
    words = rest.split()
    if words and _NO_ROOT.match(words[0]):
        root, words = -1, words[1:]
    elif words and _ROOT.fullmatch(words[0]) and _has_root(words, columns):
        root, words = int(words[0]), words[1:]
    row = Row(number, int(match[1]), int(match[2]), match[3], redop, root)
    return row, words


def _has_root(words: Sequence[str], columns: Columns) -> bool:
    """Return whether a root is before the figures; without a header, whether that gives whole sides."""
    if columns.root is not None:
        return columns.root
    return len(list(takewhile(_CELL.fullmatch, words))) in {5, 9}


def _is_told(cells: Sequence[str]) -> bool:
    """Return whether a side has its three figures."""
    return all(cell[:1].isdigit() for cell in cells[:3])


def _version_of_code(code: int) -> str:
    """Return 2.27.6 of 22706; before 2.9 the code had a digit less (2804 is 2.8.4)."""
    if code < 10_000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"
