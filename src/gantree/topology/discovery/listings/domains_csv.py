"""A list of nodes with their domains, written by people: CSV with a header line.

    node,pod,rack,machine,label:pool,partition:power
    n[0-3],p0,r0,dgx-h100,train,feed-a

The first column names nodes, one or a hostlist. The columns after it are tiers, the widest first. Then come, in any
order and all optional: `machine` (a model of the catalogue), `gpus`, `gpu` (a model), `cpus`, `memory_GiB`, `address`,
`label:<key>`, `partition:<name>`. Cells of these may be empty: not given. An empty cell of a tier is a node that has no
such domain: it gets one of its own.

A rack `r0` in pod `p0` and one in pod `p1` are two racks.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gantree.text.records import MAX_PROBLEMS, Report
from gantree.text.words import NAME_PATTERN, counted, did_you_mean, shortened
from gantree.topology.discovery.fabrics import FabricReading, SeenNode
from gantree.topology.discovery.gpu_names import model_written
from gantree.topology.discovery.listings.csv_rows import Row, Sheet, read_sheet
from gantree.topology.discovery.listings.divisions import Path, whole_paths
from gantree.topology.discovery.listings.label_keys import RESERVED_TIERS
from gantree.topology.discovery.listings.slurm_names import ALLOWED_NAMES, Names, is_name
from gantree.topology.discovery.merging import some

NODE_TITLES = ("node", "nodes", "name", "names", "host", "hostname")
HARDWARE = ("machine", "gpus", "gpu", "cpus", "memory_GiB", "address")
LABEL, PARTITION = "label:", "partition:"
MAX_TIERS = 31
MAX_GPUS = 1024
_NO_TIERS = "no column tells a domain: all nodes are alike far from each other"
_TIER = re.compile(NAME_PATTERN, re.ASCII)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which column is what: tiers are the ones right after the first, the rest are by title."""

    tiers: tuple[str, ...]
    titles: tuple[str, ...]

    def given(self, row: Row, title: str) -> str:
        """Return a cell by the title of its column, "" where there is no such column."""
        return row.cells[self.titles.index(title)] if title in self.titles else ""

    def prefixed(self, row: Row, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return the cells that are not empty of the columns `<prefix><key>`, by key."""
        width = len(self.tiers) + 1
        return tuple(
            (title.removeprefix(prefix), cell)
            for title, cell in zip(self.titles[width:], row.cells[width:], strict=True)
            if title.startswith(prefix) and cell
        )


def parse(text: str, source: str) -> FabricReading:
    """Read such a list. BadInput where there is no table; BadFields, with lines, for what is wrong in it."""
    sheet = read_sheet(text, source)
    report = Report(source)
    columns = _columns(sheet, report)
    report.check()
    row_of_node = _rows_of_nodes(sheet, report)
    given = [_hardware(columns, row, report) for row in _checked(sheet, columns, report)]
    report.check()
    number_of_row = {row.line: number for number, row in enumerate(sheet.rows)}
    width = len(columns.tiers)
    at = whole_paths({node: row.cells[1 : width + 1] for node, row in row_of_node.items()})
    nodes = [
        _seen(node, at[node], row, given[number_of_row[row.line]], columns)
        for node, row in row_of_node.items()
    ]
    return FabricReading(
        columns.tiers,
        tuple(nodes),
        inferred=tuple(_inferred(sheet, columns, nodes)),
        warnings=tuple(_warnings(sheet, columns)),
        warnings_if_alone=() if columns.tiers else (_NO_TIERS,),
    )


def _columns(sheet: Sheet, report: Report) -> _Columns:
    first, *others = sheet.columns
    if first.lower() not in NODE_TITLES:
        found, allowed = f"`{shortened(first)}`", "`node`, whose cells name nodes"
        report.add(sheet.header_line, "column 1", found, allowed)
    titles = [first]
    tiers: list[str] = []
    for title in others:
        known = _known(title)
        if known is None and len(titles) == len(tiers) + 1:
            tiers.append(title)
        titles.append(known or title)
        _check_title(title, known, tiers, sheet, report)
    if len(tiers) > MAX_TIERS:
        report.add(sheet.header_line, "header", f"{len(tiers)} tiers", f"at most {MAX_TIERS}")
    return _Columns(tuple(tiers), tuple(titles))


def _known(title: str) -> str | None:
    """Return the title of a column that is no tier as it is documented, however it was capitalised."""
    folded = title.lower()
    for prefix in (LABEL, PARTITION):
        if folded.startswith(prefix):
            return prefix + title[len(prefix) :].strip()
    return next((word for word in HARDWARE if word.lower() == folded), None)


def _check_title(
    title: str, known: str | None, tiers: Sequence[str], sheet: Sheet, report: Report
) -> None:
    place = f"column {shortened(title)}"
    if known in {LABEL, PARTITION}:
        report.add(sheet.header_line, place, "no key", f"`{known}<key>`")
    elif known is None and title not in tiers:
        allowed = f"{', '.join(HARDWARE)}, label:<key>, partition:<name>; tiers stand before them"
        report.add(
            sheet.header_line, place, "an unknown column", allowed, did_you_mean(title, HARDWARE)
        )
    elif known is None and (not _TIER.fullmatch(title) or title in RESERVED_TIERS):
        allowed = f"a tier's name, other than {', '.join(sorted(RESERVED_TIERS))}"
        report.add(sheet.header_line, place, f"`{shortened(title)}`", allowed)


def _rows_of_nodes(sheet: Sheet, report: Report) -> dict[str, Row]:
    names = Names(report)
    found: dict[str, Row] = {}
    for row in sheet.rows:
        if len(report.problems) == MAX_PROBLEMS:
            break
        for node in names.read(row.cells[0], row.line, "node"):
            first = found.setdefault(node, row)
            if first is not row:
                there = f"`{node}`, which is in line {first.line}"
                report.add(row.line, "node", there, "each node once")
    return found


def _checked(sheet: Sheet, columns: _Columns, report: Report) -> Iterator[Row]:
    for row in sheet.rows:
        if len(report.problems) == MAX_PROBLEMS:
            return
        _check_domains(columns, row, report)
        yield row


def _seen(
    node: str, at: Path, row: Row, given: Mapping[str, float | None], columns: _Columns
) -> SeenNode:
    return SeenNode(
        node,
        at,
        labels=columns.prefixed(row, LABEL),
        partitions=columns.prefixed(row, PARTITION),
        machine=columns.given(row, "machine") or None,
        gpus=None if given["gpus"] is None else int(given["gpus"]),
        gpu=model_written(columns.given(row, "gpu")) if columns.given(row, "gpu") else None,
        cpus=given["cpus"],
        memory_GiB=given["memory_GiB"],
        address=columns.given(row, "address") or None,
    )


def _check_domains(columns: _Columns, row: Row, report: Report) -> None:
    domains = zip(columns.tiers, row.cells[1:], strict=False)
    partitions = [(PARTITION + name, cell) for name, cell in columns.prefixed(row, PARTITION)]
    for title, cell in (*domains, *partitions):
        if cell and not is_name(cell):
            report.add(row.line, title, f"`{shortened(cell)}`", ALLOWED_NAMES)


def _hardware(columns: _Columns, row: Row, report: Report) -> Mapping[str, float | None]:
    """Return the numbers of a row, None where not given."""
    given: dict[str, float | None] = {}
    for title in ("gpus", "cpus", "memory_GiB"):
        cell = columns.given(row, title)
        given[title] = number = _number(cell)
        whole = title != "gpus" or number is None or (number.is_integer() and number <= MAX_GPUS)
        if cell and (number is None or not whole):
            allowed = (
                f"a whole number up to {MAX_GPUS}" if title == "gpus" else "a number, 0 or more"
            )
            report.add(row.line, title, f"`{shortened(cell)}`", allowed)
    gpu = columns.given(row, "gpu")
    if gpu and model_written(gpu) is None:
        allowed = "a GPU model such as H100-80GB, or a product's name with its memory"
        report.add(row.line, "gpu", f"`{shortened(gpu)}`", allowed)
    return given


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _inferred(sheet: Sheet, columns: _Columns, nodes: Sequence[SeenNode]) -> Iterator[str]:
    if sheet.separated_by != "commas" and len(sheet.columns) > 1:
        yield f"cells are separated by {sheet.separated_by}"
    yield from said_of_repeats(columns.tiers, [node.at for node in nodes])


def said_of_repeats(tiers: Sequence[str], paths: Sequence[Path]) -> Iterator[str]:
    """Report which tiers have domains of one name in several wider ones: each of them is a domain of its own."""
    wider = [0] * len(paths)  # the number of the domain of each path in the tier before
    for number, tier in enumerate(tiers):
        domains: dict[tuple[int, str], int] = {}
        wider = [
            domains.setdefault((outer, path[number]), len(domains))
            for outer, path in zip(wider, paths, strict=True)
        ]
        count_of_name = Counter(name for _, name in domains)
        repeated = sorted(name for name, count in count_of_name.items() if count > 1)
        if repeated:
            yield (
                f"{len(repeated)} names of tier {tier} are in several domains of {tiers[number - 1]} "
                f"({some(repeated)}): each is a domain of its own"
            )


def _warnings(sheet: Sheet, columns: _Columns) -> Iterator[str]:
    for number, tier in enumerate(columns.tiers, 1):
        empty = [row.line for row in sheet.rows if not row.cells[number]]
        if empty:
            lines = some(str(line) for line in empty)
            yield f"{tier} is empty in {counted(len(empty), 'row', 'rows')} (lines {lines}): domains of their own"
