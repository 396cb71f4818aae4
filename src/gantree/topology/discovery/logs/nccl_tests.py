"""Results of nccl-tests (and rccl-tests): times of collectives by size and number of ranks.

Finding the tables in the text is `nccl_log`; what the figures mean for a link is `telemetry.measuring`.

A print is checked against itself. `algbw` is size over time, so a row in which it is far from that is refused.
`busbw / algbw` is 2(n-1)/n for an all-reduce among n ranks and (n-1)/n for an all-gather, a reduce-scatter and an
all-to-all; of these three, `size` is also n times the elements of `count`. So the rows know n, whatever became of the
lines that name the ranks. They fill in for them (`inferred`); where both are there and differ, a warning states so and
the lines are. Old prints do not name the collective: then the command line before it does, or the caller,
or the name of the file, or the rows themselves as far as they can.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, floor, inf

from gantree.model.errors import BadFields, BadInput, Problem
from gantree.text.words import counted, plural, shortened
from gantree.topology.discovery.logs.nccl_log import (
    BYTES_OF_TYPE,
    COLLECTIVE_OF_TEST,
    Cells,
    Columns,
    RankDevice,
    Row,
    Table,
    read_tables,
)

MAX_RANKS = 10_000_000
_GATHERING = ("all_gather", "reduce_scatter", "all_to_all")
"""Collectives whose size is that of all ranks together, n times count."""
_CHECKED_FROM_GBPS = 0.1
"""From here on two decimals give a bandwidth well enough to be checked."""
_IN_A_FILE_NAME = tuple(
    (re.compile(rf"(?<![a-z]){name.replace('_', '[-_ ]?')}(?![a-z])"), name)
    for name in COLLECTIVE_OF_TEST.values()
)


@dataclass(frozen=True, slots=True)
class Timing:
    """One side of a row: microseconds, GB/s, and how many values were wrong (None: not checked)."""

    time_us: float
    algbw_GBps: float
    busbw_GBps: float
    wrong: int | None


@dataclass(frozen=True, slots=True)
class NcclRow:
    """One size of one collective.

    size_bytes as nccl-tests count it: of the larger buffer of one rank. redop is None where the print has none,
    root None where it has none and -1 where the collective has none. in_place is None where it was cut off.
    """

    line: int
    size_bytes: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    out_of_place: Timing
    in_place: Timing | None

    @property
    def time_us(self) -> float:
        """Microseconds of one collective, out of place."""
        return self.out_of_place.time_us

    @property
    def algbw_GBps(self) -> float:
        """Size over time, out of place."""
        return self.out_of_place.algbw_GBps

    @property
    def busbw_GBps(self) -> float:
        """Bus bandwidth as nccl-tests define it, out of place."""
        return self.out_of_place.busbw_GBps


@dataclass(frozen=True, slots=True)
class NcclRun:
    """One table. None is what neither the print nor its rows give.

    ranks is the number of ranks in one collective, ranks_by_rows what its rows imply; nodes the number of different
    hosts of these ranks. library is "nccl" or "rccl", version its version. avg_busbw_GBps and out_of_bounds
    are as the foot of the table gives them. cpu_time: the times are those of the call, not of the collective.
    """

    collective: str | None
    rows: tuple[NcclRow, ...]
    ranks: int | None = None
    ranks_by_rows: int | None = None
    nodes: int | None = None
    devices: tuple[RankDevice, ...] = ()
    library: str = "nccl"
    version: str | None = None
    avg_busbw_GBps: float | None = None
    out_of_bounds: int | None = None
    cpu_time: bool = False


@dataclass(frozen=True, slots=True)
class NcclTest:
    """What a log holds: its runs in print order (one at least), what was concluded, what is missing or odd."""

    runs: tuple[NcclRun, ...]
    inferred: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return asdict(self)


def parse(text: str, source: str, collective: str | None = None) -> NcclTest:
    """Read a log. `source` names the file in errors; `collective` is what it measured, where the log does not give.

    BadInput: the text holds no row of such a test, or `collective` is none. BadFields, with line numbers: rows that
    contradict themselves.
    """
    known = COLLECTIVE_OF_TEST.values()
    if collective is not None and collective not in known:
        raise BadInput(f"{shortened(collective)!r} is no collective; known: {', '.join(known)}")
    tables, lost = read_tables(text)
    if not tables:
        raise BadInput(f"{source}: no row of an nccl-tests table; {_what_instead(text, lost)}")
    problems = [problem for table in tables for problem in _contradictions(table, source)]
    if problems:
        raise BadFields(problems[:100])
    readings = [_Reading(table, source, collective) for table in tables]
    return NcclTest(
        tuple(reading.run() for reading in readings),
        tuple(words for reading in readings for words in reading.inferred),
        (*(words for reading in readings for words in reading.warnings), *lost),
    )


class _Reading:
    """One table on its way to a run, with what was concluded and what is odd."""

    def __init__(self, table: Table, source: str, given: str | None) -> None:
        self.inferred: list[str] = []
        self.warnings = list(table.warnings)
        self._table = table
        self._source = source
        self._told = given
        self._where = f"table at line {table.rows[0][0].line}"

    def run(self) -> NcclRun:
        table = self._table
        collective = self._collective()
        rows = tuple(_row(*row, table.columns) for row in table.rows)
        by_rows = _ranks_by_rows(table, collective)
        ranks, devices = self._ranks(by_rows)
        self._look_at(rows)
        return NcclRun(
            collective,
            rows,
            ranks,
            by_rows,
            len({device.host for device in devices}) if len(devices) == ranks else None,
            tuple(table.devices),
            table.library or "nccl",
            table.version,
            table.avg_busbw,
            table.out_of_bounds,
            table.columns.cpu_time,
        )

    def _collective(self) -> str | None:
        """Return what was measured: as printed, or else from the next best source; warn if rows differ."""
        table = self._table
        by_rows = _collective_by_rows(table)
        named = table.program or table.command or self._told
        if named is None:
            named = _in_a_file_name(self._source)
            if named is not None:
                self.inferred.append(f"{self._where}: collective {named}, from the file's name")
        if named is None and by_rows is not None:
            self.inferred.append(
                f"{self._where}: collective {by_rows}, from the columns of its rows"
            )
        elif named is None:
            self.warnings.append(f"{self._where}: nothing tells which collective it is")
        elif by_rows is not None and by_rows != named:
            self.warnings.append(f"{self._where}: named {named}, but its rows are of {by_rows}")
        return named or by_rows

    def _ranks(self, by_rows: int | None) -> tuple[int | None, list[RankDevice]]:
        """Return how many ranks a collective had, and the devices of these ranks as far as they are named."""
        devices = [device for device in self._table.devices if device.group == self._group()]
        if devices:
            return self._named_ranks(devices, by_rows), devices
        of_a_process = self._table.gpus_of_a_process
        if by_rows is not None:
            self.inferred.append(
                f"{self._where}: {plural(by_rows, 'rank')}, from busbw / algbw or size / count"
            )
        elif of_a_process is not None:
            self.inferred.append(
                f"{self._where}: {plural(of_a_process, 'rank')}, if it was one process"
            )
        else:
            self.warnings.append(f"{self._where}: nothing tells how many ranks took part")
        return by_rows or of_a_process, []

    def _named_ranks(self, devices: Sequence[RankDevice], by_rows: int | None) -> int:
        split = any(device.group != devices[0].group for device in self._table.devices)
        named = {device.rank for device in devices}
        ranks = len(named) if split else max(named) + 1
        if split:
            self.warnings.append(
                f"{self._where}: ranks were split into groups; ranks are those of one"
            )
        elif len(named) < ranks:
            self.inferred.append(
                f"{self._where}: {plural(ranks, 'rank')}, from the last one that is named"
            )
            self.warnings.append(
                f"{self._where}: {ranks - len(named)} of {ranks} ranks are not named"
            )
        if by_rows not in (None, ranks):
            self.warnings.append(
                f"{self._where}: {counted(ranks, 'rank is', 'ranks are')} named, but its rows are of {by_rows}"
            )
        return ranks

    def _group(self) -> int:
        return min((device.group for device in self._table.devices), default=0)

    def _look_at(self, rows: Sequence[NcclRow]) -> None:
        columns = self._table.columns
        if columns.root is None:
            self.inferred.append(
                f"{self._where}: no header; columns as nccl-tests prints them, in us"
            )
        if columns.in_ms:
            self.inferred.append(f"{self._where}: times in ms, as the tests of NCCL 1 print them")
        if columns.cpu_time:
            self.warnings.append(f"{self._where}: times are CPU times of the call (-C)")
        for row in rows:
            wrong = max(row.out_of_place.wrong or 0, (row.in_place and row.in_place.wrong) or 0)
            if wrong:
                self.warnings.append(f"line {row.line}: {wrong} wrong values")


def _row(row: Row, first: Cells, second: Cells | None, columns: Columns) -> NcclRow:
    return NcclRow(
        row.line,
        row.size,
        row.count,
        row.dtype,
        row.redop,
        row.root,
        _timing(first, columns),
        _timing(second, columns) if second else None,
    )


def _timing(cells: Cells, columns: Columns) -> Timing:
    counted = not columns.deviations and cells.wrong[:1].isdigit()
    return Timing(
        float(cells.time) * (1000.0 if columns.in_ms else 1.0),
        float(cells.algbw),
        float(cells.busbw),
        int(float(cells.wrong)) if counted else None,
    )


def _contradictions(table: Table, source: str) -> Iterator[Problem]:
    """Rows in which size over time is not algbw by more than a factor of two, or busbw is over twice algbw.

    A factor of two is left because hypercube counts (n-1)/n of the size. CPU times do not give algbw.
    """
    for row, *sides in table.rows:
        for cells in filter(None, sides):
            timing = _timing(cells, table.columns)
            GBps = row.size / 1000 / timing.time_us if timing.time_us else inf
            if not table.columns.cpu_time and row.size and _are_apart(GBps, timing.algbw_GBps):
                found = f"{cells.algbw} GB/s for {row.size} bytes in {cells.time}"
                yield Problem(source, row.line, "algbw", found, f"size / time, {GBps:.3g} GB/s")
            if timing.busbw_GBps > 2.1 * timing.algbw_GBps + _CHECKED_FROM_GBPS:
                found = f"{cells.busbw} GB/s where algbw is {cells.algbw}"
                yield Problem(source, row.line, "busbw", found, "at most twice algbw")


def _are_apart(a: float, b: float) -> bool:
    return max(a, b) >= _CHECKED_FROM_GBPS and not 0.4 * b <= a <= 2.5 * b


def _in_a_file_name(source: str) -> str | None:
    """Return the collective that a file is named after ("a100-allreduce.txt"), if it is one."""
    name = source.replace("\\", "/").rpartition("/")[2][:300].lower()
    found = {collective for pattern, collective in _IN_A_FILE_NAME if pattern.search(name)}
    if len(found) > 1:  # "all-reduce" holds "reduce", "reduce-scatter" too
        found -= {"reduce", "gather", "scatter"}
    return found.pop() if len(found) == 1 else None


def _collective_by_rows(table: Table) -> str | None:
    """Return the collective that the rows can be of, if it is only one.

    Those that reduce print the operation; those of _GATHERING a size that is n times count, which among rows of
    known type shows; new prints a root, -1 where there is none.
    """
    row = max(
        (row for row, *_ in table.rows if row.dtype in BYTES_OF_TYPE),
        key=lambda r: r.size,
        default=None,
    )
    if row is None or not row.count:
        return None
    reduces = row.redop not in (None, "none")
    if row.size > row.count * BYTES_OF_TYPE[row.dtype]:
        return "reduce_scatter" if reduces else None
    if reduces and row.root is not None:
        return "all_reduce" if row.root < 0 else "reduce"
    over = any(float(c.busbw) > 1.02 * float(c.algbw) > 1 for _, c, _ in table.rows)
    return "all_reduce" if reduces and over else None


def _ranks_by_rows(table: Table, collective: str | None) -> int | None:
    """Return the number of ranks that the rows are of, if they give just one."""
    counted = {_times_count(row) for row, *_ in table.rows if row.count} - {None}
    if collective in _GATHERING and len(counted) == 1:
        return counted.pop()
    least, most = 1.0, float(MAX_RANKS)
    for _, *sides in table.rows:
        for cells in filter(None, sides):
            low, high = _ranks_of(cells, collective)
            least, most = max(least, low), min(most, high)
    if not 1 < least <= most:
        return None
    return ceil(least) if ceil(least) == floor(most) else None


def _times_count(row: Row) -> int | None:
    elements = row.count * BYTES_OF_TYPE.get(row.dtype, 0)
    return row.size // elements if elements and row.size % elements == 0 else None


def _ranks_of(cells: Cells, collective: str | None) -> tuple[float, float]:
    """Return between which numbers of ranks busbw / algbw lies, as far as the printed decimals allow."""
    whole = {"all_reduce": 2.0, **dict.fromkeys(_GATHERING, 1.0)}.get(collective or "")
    algbw, busbw = float(cells.algbw), float(cells.busbw)
    if whole is None or algbw < 1:
        return 1.0, inf
    low = (busbw - _half_step(cells.busbw)) / (algbw + _half_step(cells.algbw))
    high = (busbw + _half_step(cells.busbw)) / (algbw - _half_step(cells.algbw))
    return (whole / (whole - low) if low < whole else inf), (
        whole / (whole - high) if high < whole else inf
    )


def _half_step(word: str) -> float:
    """Return by how much a printed number may have been rounded."""
    mantissa, _, exponent = word.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5005 * 10.0 ** (int(exponent or 0) - decimals)


def _what_instead(text: str, lost: Sequence[str]) -> str:
    """Report what a text without rows is, and what would help."""
    if lost:
        return shortened(lost[0], 300)
    if text.lstrip()[:1] == "{":
        return "this looks like the JSON of -J; give what the test prints on its standard output"
    if "USAGE:" in text and "--minbytes" in text:
        return "this is its help"
    if "command not found" in text or "No such file or directory" in text:
        return "the program was not found where it was started"
    if "Using devices" in text or "nThread" in text:
        return "it ended before its first row"
    return "give what all_reduce_perf and its kin print on their standard output"
