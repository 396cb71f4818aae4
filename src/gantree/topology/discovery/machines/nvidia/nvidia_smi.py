"""A machine from `nvidia-smi topo -m`. `matrix_text` finds the table in the text.

Every cell is printed twice, in its row and in its mirror row. Where rows are missing or cut, the mirror fills in,
and what neither gives stays unknown and is named in the warnings: nothing is guessed. Where both are given and
differ, a source edited the text, and it is refused. Old drivers print no NUMA column; CPU sets then give
which GPUs share a socket (`gpus.machine_from` uses them, the printed `numa` stays unknown).

A NUMA cell may be "N/A" (a host with one node), a number, or a list: on Grace machines GPU memory is made of NUMA
nodes too, so "0,2-17" is CPU node 0 and sixteen nodes of GPU memory.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from gantree.model.errors import Problem
from gantree.text.words import plural
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.devices.cpu_lists import ranges as cpu_ranges
from gantree.topology.discovery.machines.input_errors.refusal import refuse
from gantree.topology.discovery.machines.nvidia.matrix_checks import (
    column_problems,
    diagonal_problem,
    missing_rows,
    row_problems,
)
from gantree.topology.discovery.machines.nvidia.matrix_text import (
    TITLES,
    Grid,
    Row,
    is_link_word,
    read_grid,
)
from gantree.topology.hardware.catalog import SELF, bonded_links

CPU_TITLE, NUMA_TITLE, GPU_NUMA_TITLE = TITLES
_OLD_NAMES = {"SOC": "SYS"}
"""Old drivers call the path between sockets SOC."""
_ALLOWED = f"{SELF}, NV1, NV2..., PIX, PXB, PHB, NODE, SYS"

_PCI_ALONE = re.compile(r"\btopo +-mp\b")
_DAMAGED_LIST = re.compile(r"[0-9,-]+")

Cells = dict[tuple[str, str], tuple[str, int]]
"""(row, column) -> link class and line."""


def parse(text: str, source: str) -> GpuTopology:
    """Read a print. `source` names the file in errors.

    BadInput: the text holds no such matrix, or two. BadFields, with line numbers: cells that contradict each
    other, that are no link class, rows that do not match the columns.
    """
    grid = read_grid(text, source)
    problems = [
        *column_problems(grid, source),
        *row_problems(grid, source, _is_class, _ALLOWED),
    ]
    refuse(problems)
    cells, fragments = _cells(grid)
    problems = _cell_problems(cells, source) + _tail_problems(grid, source)
    refuse(problems)
    row_of = {row.device: row for row in grid.rows}
    numa_cells = [_tail(row_of.get(gpu), NUMA_TITLE) for gpu in grid.gpus]
    found = GpuTopology(
        links=_table(cells, grid.gpus, grid.gpus),
        nic_links=_table(cells, grid.gpus, grid.nics),
        numa=_numa(numa_cells, [_tail(row_of.get(gpu), GPU_NUMA_TITLE) for gpu in grid.gpus]),
        one_numa_node=all(cell == "N/A" for cell in numa_cells),
        cpu_sets=tuple(cpu_ranges(_tail(row_of.get(gpu), CPU_TITLE)) for gpu in grid.gpus),
        nics=grid.nics,
        device_of_nic=grid.device_of_nic,
    )
    warnings = _warnings(grid, found, fragments)
    if _PCI_ALONE.search(text):
        warnings.append("`topo -mp` leaves NVLinks out; give the print of `nvidia-smi topo -m`")
    return replace(found, inferred=tuple(_inferred(grid)), warnings=tuple(warnings))


def _is_class(word: str) -> bool:
    return is_link_word(word) and (not word.startswith("NV") or bonded_links(word) > 0)


def _cells(grid: Grid) -> tuple[Cells, list[Row]]:
    """Return all cells that are given, and the cut rows whose last word is only a fragment of a cell."""
    cells: Cells = {}
    fragments = []
    for row in grid.rows:
        for column, word in zip(grid.devices, row.cells, strict=False):
            cells[row.device, column] = (_OLD_NAMES.get(word, word), row.line)
    for row in grid.rows:
        if not row.cut or not row.cells:
            continue
        last = grid.devices[len(row.cells) - 1]
        mirror = cells.get((last, row.device))
        if not _is_whole(row.cells[-1], mirror[0] if mirror else None):
            del cells[row.device, last]
            fragments.append(row)
    return cells, fragments


def _is_whole(word: str, mirror: str | None) -> bool:
    """Return whether the last word of a cut row is all of its cell: NV1 may be the beginning of NV18."""
    if mirror is not None:
        return _OLD_NAMES.get(word, word) == mirror
    return _is_class(word) and bonded_links(word) not in range(1, 10)


def _cell_problems(cells: Cells, source: str) -> list[Problem]:
    problems = []
    for (row, column), (link, line) in cells.items():
        where = f"row {row}, column {column}"
        mirror = cells.get((column, row))
        off = diagonal_problem(source, line, row, column, link)
        if off:
            problems.append(off)
        elif mirror and mirror[0] != link and (line, row) > (mirror[1], column):
            allowed = f"{mirror[0]!r}, as row {column}, column {row} says in line {mirror[1]}"
            problems.append(Problem(source, line, where, repr(link), allowed))
    return problems


def _tail_problems(grid: Grid, source: str) -> list[Problem]:
    problems = []
    for _, row in _gpu_rows(grid):
        for title, word in row.tail.items():
            if word != "N/A" and cpu_ranges(word) is None and not _is_damaged(title, word):
                allowed = "N/A, a number, or a list such as 0-23,48-71"
                problems.append(
                    Problem(
                        source, row.line, f"row {row.device}, {title}", repr(word[:40]), allowed
                    )
                )
    return problems


def _is_damaged(title: str, word: str) -> bool:
    """Return whether a word is a list of CPUs that lost a part; the rest of a print is good without it."""
    return title == CPU_TITLE and bool(_DAMAGED_LIST.fullmatch(word))


def _table(
    cells: Cells, rows: tuple[str, ...], columns: tuple[str, ...]
) -> tuple[tuple[str | None, ...], ...]:
    def link(row: str, column: str) -> str | None:
        if row == column:
            return SELF
        given = cells.get((row, column)) or cells.get((column, row))
        return given[0] if given else None

    return tuple(tuple(link(row, column) for column in columns) for row in rows)


def _tail(row: Row | None, title: str) -> str | None:
    return row.tail.get(title) if row else None


def _numa(cells: list[str | None], gpu_cells: list[str | None]) -> tuple[int | None, ...]:
    """Return the CPU node of each GPU, given the cells of "NUMA Affinity" and of "GPU NUMA ID"."""
    of_gpu_memory = {ranges[0][0] for ranges in map(cpu_ranges, gpu_cells) if ranges}
    sole = {ranges[0][0] for ranges in map(cpu_ranges, cells) if ranges and _is_one(ranges)}
    return tuple(_cpu_node(cpu_ranges(cell), of_gpu_memory, sole) for cell in cells)


def _is_one(ranges: tuple[tuple[int, int], ...]) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def _cpu_node(
    ranges: tuple[tuple[int, int], ...] | None, of_gpu_memory: set[int], sole: set[int]
) -> int | None:
    """Return the CPU node of a list of NUMA nodes, where only one can be it.

    That is the one that is left without the GPUs' own nodes, or a single number before runs of several: "0,2-17".
    Where another GPU has its CPU node inside those runs, they are no GPU memory, and the list stays ambiguous.
    """
    if ranges is None:
        return None
    (first, last), *others = ranges
    if _is_one(ranges):
        return first
    left = [part for part in ranges if not (_is_one((part,)) and part[0] in of_gpu_memory)]
    if len(left) == 1 and _is_one(tuple(left)):
        return left[0][0]
    in_runs = any(begin <= node <= end for node in sole for begin, end in others)
    if first == last and all(begin < end for begin, end in others) and not in_runs:
        return first
    return None


def _inferred(grid: Grid) -> list[str]:
    inferred = []
    if any(word in _OLD_NAMES for row in grid.rows for word in row.cells):
        inferred.append("SOC is the old name of SYS, and is given as SYS")
    lines = [str(row.line) for row in grid.rows if row.parted]
    if lines:
        shown = ", ".join(lines[:8]) + (", ..." if len(lines) > 8 else "")
        note = "cells that stand together without a blank are taken apart"
        inferred.append(f"{note} (NODENODE; line {shown})")
    return inferred


def _warnings(grid: Grid, found: GpuTopology, fragments: Iterable[Row]) -> list[str]:
    warnings = missing_rows(grid)
    cut_in = {row.device: len(row.cells) for row in grid.rows if row.cut}
    for row in grid.rows:
        if row.device in cut_in:
            of = plural(len(grid.devices), "cell")
            note = f"line {row.line}: row {row.device} ends after {len(row.cells)} of {of}"
            warnings.append(note + (", the last of them a fragment" if row in fragments else ""))
    warnings += [
        f"line {row.line}: row {row.device} has more cells than the header has columns; affinities are not read"
        for _, row in _gpu_rows(grid)
        if row.unclear
    ]
    warnings += [
        f"line {row.line}: row {row.device} has fewer cells than the header has columns; affinities are read from "
        "the left"
        for _, row in _gpu_rows(grid)
        if row.few
    ]
    warnings += [
        f"line {row.line}: row {row.device}, {CPU_TITLE}: {row.tail[CPU_TITLE][:40]!r} is no list of CPUs; not read"
        for _, row in _gpu_rows(grid)
        if cpu_ranges(row.tail.get(CPU_TITLE, "0")) is None and row.tail[CPU_TITLE] != "N/A"
    ]
    if grid.columnless:
        warnings.append(f"{', '.join(grid.columnless)} have rows, and no columns; not read")
    pairs = sum(found.links[a][b] is None for a, b in combinations(range(found.gpus), 2))
    if pairs:
        warnings.append(f"the paths of {pairs} pairs of GPUs are not given")
    if NUMA_TITLE not in grid.titles:
        warnings.append("no NUMA column; sockets can only be told from CPU sets")
    warnings += [
        f"GPU{gpu}: NUMA {_tail(row, NUMA_TITLE)} does not tell which node is the CPU's"
        for gpu, row in _gpu_rows(grid)
        if found.numa[gpu] is None and cpu_ranges(_tail(row, NUMA_TITLE))
    ]
    if grid.ignored_from_line is not None:
        warnings.append(
            f"the peer-to-peer matrix from line {grid.ignored_from_line} on is not read"
        )
    return warnings


def _gpu_rows(grid: Grid) -> Iterable[tuple[int, Row]]:
    number = {name: gpu for gpu, name in enumerate(grid.gpus)}
    return ((number[row.device], row) for row in grid.rows if row.device in number)
